"use strict";
// The gallery: filters over all rows in memory, a page of cards in the document. Text only ever enters as text nodes.
(() => {
  const { rows } = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 20;
  const state = { verdict: "all", type: "", failure: "", words: "", page: 0 };
  let found = rows;

  function element(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "style") Object.assign(node.style, value);
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value);
    }
    for (const child of children) node.append(child);
    return node;
  }

  function clock(seconds) {
    const whole = Math.floor(seconds + 0.5), two = (n) => String(n).padStart(2, "0");
    const hours = Math.floor(whole / 3600);
    return (hours ? two(hours) + ":" : "") + two(Math.floor(whole / 60) % 60) + ":" + two(whole % 60);
  }

  const haystack = (row) => (row.words ??= [row.id, row.question, row.answer, row.reference, row.text || ""].join("\n").toLowerCase());

  function filter() {
    const words = state.words.trim().toLowerCase();
    found = rows.filter((row) =>
      (state.verdict === "all" || (state.verdict === "ungrounded" ? row.ungrounded : row.verdict === state.verdict)) &&
      (!state.type || row.types.includes(state.type)) &&
      (!state.failure || row.failure === state.failure) &&
      (!words || haystack(row).includes(words)));
    state.page = 0;
    draw();
  }

  function lane(spans, kind, name, end) {
    const node = element("div", { class: "lane", role: "img", "aria-label": name + ": " + (spans.map(([a, b]) => clock(a) + " to " + clock(b)).join(", ") || "none") });
    for (const [start, stop, text] of spans) {
      const left = Math.min(100, Math.max(0, 100 * start / end));
      const width = Math.min(100 - left, Math.max(0, 100 * (stop - start) / end));
      node.append(element("span", { class: "bar " + kind, title: clock(start) + "-" + clock(stop) + "  " + text, style: { left: left + "%", width: width + "%" } }));
    }
    return node;
  }

  function timeline(row) {
    const spans = [...row.true, ...row.said];
    if (!spans.length) return [];
    const end = row.duration || Math.max(...spans.map((span) => span[1])) || 1;
    const list = element("ul", { class: "spans" });
    for (const kind of ["true", "said"]) {
      for (const [start, stop, text] of row[kind]) {
        list.append(element("li", {}, element("span", { class: "key " + kind }), clock(start) + "-" + clock(stop) + "  " + text));
      }
    }
    for (const text of row.unreadable || []) list.append(element("li", {}, element("span", { class: "key said" }), "no usable time  " + text));
    return [lane(row.true, "true", "reference spans", end), lane(row.said, "said", "predicted spans", end),
      element("div", { class: "axis" }, element("span", {}, clock(0)), element("span", {}, clock(end))), list];
  }

  const NAMES = { right: "right", partly: "partly right", wrong: "wrong", ungrounded: "ungrounded", unscored: "unscored", unanswered: "unanswered" };

  function card(row) {
    const node = element("article", { class: "card" }, element("h3", {}, row.question));
    const caption = element("p", { class: "soft" }, element("span", { class: "tag " + row.verdict }, NAMES[row.verdict]));
    if (row.ungrounded) caption.append(element("span", { class: "tag ungrounded" }, "ungrounded"));
    caption.append([row.id, ...row.types, ...(row.failure ? [row.failure] : [])].join(" · "));
    node.append(caption);
    if (row.options) node.append(element("p", {}, row.options.map(([letter, text]) => letter + ". " + text).join("   ")));
    const pair = element("dl", { class: "pair" });
    const add = (name, text) => pair.append(element("dt", {}, name), element("dd", {}, text));
    add("said", row.answer || (row.error ? "(" + row.error + ")" : "(nothing)"));
    if (row.reference) add("reference", row.reference);
    node.append(pair);
    if (row.frames) {
      node.append(element("div", { class: "strip" }, ...row.frames.map(([image, label]) =>
        element("figure", {}, element("img", { src: image, alt: "frame at " + label }), element("figcaption", {}, label)))));
    }
    node.append(...timeline(row));
    if (row.reasoning) node.append(element("blockquote", {}, row.reasoning));
    const notes = Object.entries(row.notes || {}).map(([name, text]) => name + ": " + text).join("; ");
    if (notes) node.append(element("p", { class: "soft" }, notes));
    const faults = Object.entries(row.faults || {}).map(([name, count]) => name + (count > 1 ? " ×" + count : "")).join(", ");
    if (faults) node.append(element("p", { class: "soft" }, "faults: " + faults));
    const values = Object.entries(row.values).map(([name, value]) => name + " " + (value === null ? "–" : value)).join("   ");
    const more = element("details", {}, element("summary", {}, "whole response and scores"));
    if (row.text) more.append(element("pre", {}, row.text));
    more.append(element("pre", {}, values));
    node.append(more);
    return node;
  }

  function pager(place) {
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    const go = (step) => () => {
      state.page += step;
      draw();
      if (place === "pager-bottom") document.getElementById("controls").scrollIntoView();
    };
    const back = element("button", { type: "button", onclick: go(-1) }, "‹ back"), next = element("button", { type: "button", onclick: go(1) }, "next ›");
    back.disabled = state.page === 0;
    next.disabled = state.page >= pages - 1;
    const first = state.page * PAGE;
    const shown = found.length ? (first + 1) + "–" + Math.min(first + PAGE, found.length) + " of " + found.length : "no items";
    document.getElementById(place).replaceChildren(back, next, element("span", { class: "soft" }, shown));
  }

  function draw() {
    const first = state.page * PAGE;
    document.getElementById("items").replaceChildren(...found.slice(first, first + PAGE).map(card));
    pager("pager-top");
    pager("pager-bottom");
    for (const button of document.querySelectorAll("#controls button")) {
      button.setAttribute("aria-pressed", String(button.dataset.verdict === state.verdict));
    }
  }

  function choice(name, values, key) {
    const node = element("select", { "aria-label": name, onchange: (event) => { state[key] = event.target.value; filter(); } });
    node.append(element("option", { value: "" }, "any " + name));
    for (const value of values) node.append(element("option", { value }, value));
    return node;
  }

  const controls = document.getElementById("controls");
  const counts = new Map();
  for (const row of rows) {
    counts.set(row.verdict, (counts.get(row.verdict) || 0) + 1);
    if (row.ungrounded) counts.set("ungrounded", (counts.get("ungrounded") || 0) + 1);
  }
  const kinds = ["all", ...Object.keys(NAMES).filter((kind) => counts.has(kind))];
  for (const kind of kinds) {
    const button = element("button", { type: "button", onclick: () => { state.verdict = kind; filter(); } },
      kind === "all" ? "all " + rows.length : NAMES[kind] + " " + counts.get(kind));
    button.dataset.verdict = kind;
    controls.append(button);
  }
  const unique = (values) => [...new Set(values)].sort();
  const types = unique(rows.flatMap((row) => row.types)), failures = unique(rows.map((row) => row.failure).filter(Boolean));
  if (types.length > 1) controls.append(choice("type", types, "type"));
  if (failures.length) controls.append(choice("failure", failures, "failure"));
  let waiting = 0;
  controls.append(element("input", { type: "search", placeholder: "words in question or answer", "aria-label": "words",
    oninput: (event) => {
      state.words = event.target.value;
      clearTimeout(waiting);
      waiting = setTimeout(filter, 60);
    } }));
  draw();
})();
