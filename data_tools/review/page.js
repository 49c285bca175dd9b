// The flow: a name, a task, one item after another. An answer is kept in the browser until the server has it.

const TASK_NAMES = {adjudicate: "Adjudicate", audit: "Audit", segments: "Segments", verify: "Rate", meta: "Meta-review"};
const HINTS = {
  adjudicate: "Accept, reject or edit. Drag evidence on the timeline, or type times.", audit: "Is this item valid?",
  segments: "Correct the segments before questions are written.",
  verify: "Watch the video, then rate by it alone. Nobody sees others' ratings.",
  meta: "Rated low by somebody. Keep it or remove it, with a reason.",
};
const PENDING = "vrjax-review-pending", NAME = "vrjax-review-name";

function startReview(root) {
  const named = root.dataset.named === "yes";
  const page = {rater: named ? "me" : localStorage.getItem(NAME) || "", task: null, item: null, form: null, answered: [], busy: false};
  const say = (text, kind = "") => { status.textContent = text; status.className = `rv-status ${kind}`; };
  const status = el("p", {class: "rv-status", "aria-live": "polite"});
  const who = el("div", {class: "rv-who"}), tasks = el("nav", {class: "rv-tasks", "aria-label": "tasks"});
  const hint = el("p", {class: "rv-hint"});
  const video = el("video", {controls: true, preload: "metadata", playsinline: true});
  const note = el("p", {class: "rv-note rv-video-note"});
  const timeline = new Timeline({seek: (seconds) => { stopAt = null; video.currentTime = seconds; timeline.playhead(seconds); },
    moved: () => {}, picked: () => {}});
  const place = el("div", {class: "rv-place"}), actions = el("div", {class: "rv-actions"});
  const main = el("div", {class: "rv-main"},
    el("div", {class: "rv-left"}, video, note, timeline.root, hint), el("div", {class: "rv-right"}, place, actions));
  root.replaceChildren(el("div", {class: "rv-top"}, who, tasks), status, main);
  let stopAt = null;

  video.addEventListener("timeupdate", () => {
    timeline.playhead(video.currentTime);
    if (stopAt !== null && video.currentTime >= stopAt) { video.pause(); stopAt = null; }
  });
  video.addEventListener("loadedmetadata", () => page.form && page.form.refresh());
  video.addEventListener("error", () => {
    if (video.getAttribute("src")) showNote("The browser cannot play this video. You can judge by the text, or put the item aside.");
  });
  const showNote = (text) => { note.textContent = text; note.hidden = !text; };

  /** Send until the server answers; {ok, body, status}. */
  async function send(path, body) {
    for (let tries = 0; ; tries++) {
      try {
        const reply = await fetch(`review/${path}`, {method: "POST", headers: {"Content-Type": "application/json"},
          body: JSON.stringify({rater: page.rater, ...body})});
        if (reply.status < 500) {
          if (tries) say("The server is back.", "good");
          return {ok: reply.ok, status: reply.status, body: await reply.json().catch(() => ({error: `status ${reply.status}`}))};
        }
        say(`The server has a fault (${reply.status}). Trying again…`, "bad");
      } catch (error) {
        say("The server does not answer. What you did is kept here and sent as soon as it is back…", "bad");
      }
      await new Promise((resolve) => setTimeout(resolve, Math.min(5000, 500 * (tries + 1))));
    }
  }

  const draftKey = (item) => `vrjax-review-draft ${page.rater} ${item.task} ${item.name}`;
  function readDraft(item) {
    try {
      const kept = JSON.parse(localStorage.getItem(draftKey(item)));
      return kept && kept.payload === JSON.stringify(item.payload) && kept.over === JSON.stringify(item.answer) ? kept.state : null;
    } catch (error) { return null; }
  }
  function keepDraft() {
    const item = page.item;
    if (item) remember(draftKey(item), JSON.stringify(
      {state: page.form.state, payload: JSON.stringify(item.payload), over: JSON.stringify(item.answer)}));
  }
  function remember(key, text) {
    try { localStorage.setItem(key, text); } catch (error) { say("The browser keeps no drafts (its storage is full).", "bad"); }
  }

  function showState(state) {
    if (!state) return;
    page.dimensions = state.dimensions; page.meanings = state.meanings;
    if (named) page.rater = state.rater;
    who.replaceChildren(el("span", {}, `${page.rater} `), named ? null : el("button", {type: "button", class: "rv-small",
      onclick: () => { page.rater = ""; localStorage.removeItem(NAME); askName(); }}, "change"));
    if (named) who.replaceChildren(el("span", {}, page.rater));
    tasks.replaceChildren(...state.tasks.map((one) => el("button", {
      type: "button", class: `rv-task ${one.task === page.task ? "rv-on" : ""}`, onclick: () => choose(one.task)},
      `${TASK_NAMES[one.task]} `, el("small", {}, `${one.done}/${one.items} done`), el("small", {class: "rv-mine"}, `, ${one.mine} by you`))));
    return state;
  }

  function askName() {
    main.hidden = true; page.item = null; page.task = null; tasks.replaceChildren();
    const field = el("input", {type: "text", id: "rv-name", maxlength: 60, autocomplete: "off", class: "rv-name"});
    const form = el("form", {onsubmit: (event) => {
      event.preventDefault();
      page.rater = field.value.trim();
      if (page.rater) { remember(NAME, page.rater); begin(); }
    }}, el("label", {for: "rv-name"}, "Your name "), field, " ", el("button", {type: "submit", class: "rv-button rv-yes"}, "Start"));
    who.replaceChildren(form);
    say("");
    field.focus();
  }

  async function begin() {
    await flush();
    const {ok, body} = await send("state", {});
    if (!ok) { page.rater = ""; askName(); return say(body.error, "bad"); }
    const state = showState(body);
    const open = state.tasks.find((one) => one.done < one.items) || state.tasks[0];
    if (open) await choose(open.task); else say("There is nothing to judge.");
  }

  async function choose(task) {
    if (page.busy) return;
    page.task = task;
    say("");
    await next();
  }

  async function next() {
    page.busy = true;
    const {ok, body} = await send("next", {task: page.task});
    page.busy = false;
    if (!ok) return say(body.error, "bad");
    show(body);
  }

  function show(body) {
    page.answered = body.answered;
    page.item = body.item;
    showState(body.state);
    main.hidden = !body.item;
    if (!body.item) {
      video.removeAttribute("src"); video.load();
      return say(page.answered.length ? "Nothing is left for you here. Thank you." : "Nothing is here for you now: others have the rest open, or have done it.", "good");
    }
    const item = body.item;
    stopAt = null;
    hint.textContent = `${HINTS[item.task]}  ·  ${item.payload.video.id}`;
    timeline.playhead(0);
    if (item.video) { if (video.getAttribute("src") !== item.video) video.src = item.video; } else { video.removeAttribute("src"); video.load(); }
    video.hidden = !item.video;
    showNote(item.video_problem || "");
    timeline.picked = timeline.moved = () => {};
    page.form = makeForm(item, readDraft(item), {
      timeline, say, save, play, changed: keepDraft, dimensions: page.dimensions, meanings: page.meanings, duration,
    });
    place.replaceChildren(page.form.root);
    actions.replaceChildren(...page.form.buttons.map((one) => el("button", {type: "button", class: `rv-button rv-${one.kind}`,
      onclick: one.act}, `${one.label} `, el("kbd", {}, one.key))),
      el("button", {type: "button", class: "rv-button", onclick: later, disabled: Boolean(item.answer)}, "Later ", el("kbd", {}, "l")),
      el("button", {type: "button", class: "rv-button", onclick: back, disabled: !page.answered.length}, "Back ", el("kbd", {}, "b")),
      el("span", {class: "rv-keys"}, "space: play · 1–9: play or rate · e: edit · Esc: leave a field"));
    page.form.refresh();
    timeline.root.hidden = !item.video && !timeline.segments.length && !timeline.pieces.length;
    if (item.answer) say("You answered this one; saving changes your answer.");
  }

  function duration() {
    const item = page.item, known = item.payload.video.duration;
    if (known) return known;
    if (Number.isFinite(video.duration)) return video.duration;
    const pieces = [...(item.payload.segments || []), ...(item.payload.evidence || [])];
    return Math.max(1, ...pieces.map((one) => one.timestamp[1]));
  }

  function play(piece) {
    timeline.playhead(piece.start);
    if (!video.getAttribute("src")) return;
    video.currentTime = piece.start;
    stopAt = piece.end;
    video.play().catch(() => {});
  }

  async function save(answer) {
    if (page.busy) return;
    const wrong = place.querySelector(".rv-wrong");
    if (wrong) {
      wrong.focus();
      return say("A time cannot be read. Write it as 75, 1:15 or 1:15.5.", "bad");
    }
    page.busy = true;
    actions.classList.add("rv-busy");
    const item = page.item;
    remember(PENDING, JSON.stringify({rater: page.rater, item: item.id, name: item.name, answer}));
    const {ok, status: code, body} = await send("save", {item: item.id, answer});
    localStorage.removeItem(PENDING);
    page.busy = false;
    actions.classList.remove("rv-busy");
    if (!ok && code !== 409) return say(body.error, "bad");
    localStorage.removeItem(draftKey(item));
    say(ok ? `Saved: ${item.name}` : body.error, ok ? "good" : "bad");
    await next();
  }

  /** Send what an earlier visit could not. */
  async function flush() {
    let kept = null;
    try { kept = JSON.parse(localStorage.getItem(PENDING)); } catch (error) { /* not ours */ }
    if (!kept || (!named && kept.rater !== page.rater)) return;
    const {ok, body} = await send("save", {item: kept.item, answer: kept.answer});
    localStorage.removeItem(PENDING);
    if (!ok) say(`${kept.name} was not saved: ${body.error}`, "bad");
  }

  async function later() {
    if (page.busy || page.item.answer) return;
    page.busy = true;
    await send("later", {item: page.item.id});
    page.busy = false;
    say("");
    await next();
  }

  async function back() {
    const here = page.answered.indexOf(page.item ? page.item.id : -1);
    const id = page.answered[here + 1];
    if (page.busy || id === undefined) return;
    const {ok, body} = await send("open", {item: id});
    if (!ok) return say(body.error, "bad");
    say("");
    show(body);
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (typing && event.key === "Escape") return event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat || !root.offsetParent) return;
    if (!page.item || page.busy) {
      if (event.key === "b" && !page.item && !page.busy) back();
      return;
    }
    const inButton = event.target.closest("button, summary, video") && (event.key === "Enter" || event.key === " ");
    if (inButton) return;
    const form = page.form, piece = form.pieces()[Number(event.key) - 1];
    const button = form.buttons.find((one) => one.key === event.key);
    const common = {l: later, b: back, " ": () => (video.paused ? video.play().catch(() => {}) : video.pause())};
    const act = form.keys[event.key] || (button && button.act) || common[event.key] || (piece && (() => play(piece)));
    if (act) { event.preventDefault(); act(); }
  });

  setInterval(async () => {
    if (!page.item || page.busy || page.item.answer || document.hidden) return;
    const item = page.item;
    try {
      const reply = await fetch("review/renew", {method: "POST", headers: {"Content-Type": "application/json"},
        body: JSON.stringify({rater: page.rater, item: item.id})});
      if (reply.status === 409 && page.item === item) say((await reply.json()).error, "bad");
    } catch (error) { /* saving will say so */ }
  }, 60000);

  if (page.rater) begin(); else askName();
}
