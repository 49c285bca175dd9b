// What a rater fills in. Each form has: root, answer(decision), keys {key: action}, buttons [{label, key, kind, act}].
// `at` is the place that it works in: {duration(), play(span), timeline, changed(), save(answer), item}.

function makeForm(item, draft, at) {
  const kinds = {question: questionForm, segments: segmentsForm, pair: ratingForm, caption: ratingForm};
  return item.task === "meta" ? metaForm(item, draft, at) : kinds[item.payload.kind](item, draft, at);
}

function span(piece) {
  return {start: piece.timestamp[0], end: piece.timestamp[1], description: piece.description};
}

function unspan(piece) {
  return {timestamp: [piece.start, piece.end], description: piece.description};
}

/** A text area as high as its text, bound to a field of the state. */
function textArea(label, state, name, changed, rows = 2) {
  const id = `rv-${name}-${Math.random().toString(36).slice(2)}`;
  const area = el("textarea", {id, rows, class: "rv-text"});
  area.value = state[name];
  const grow = () => { area.style.height = "auto"; area.style.height = `${area.scrollHeight + 2}px`; };
  area.addEventListener("input", () => { state[name] = area.value; grow(); changed(); });
  setTimeout(grow);
  return el("div", {class: "rv-field"}, el("label", {for: id}, label), area);
}

/** Pieces with times and words, a row each; `words(piece, index)` makes the part after the times. Typed times call
 * retimed() and leave the rows as they are, so that the focus stays where it went. */
function pieceRows(pieces, at, words, retimed) {
  return pieces.map((piece, index) => el("div", {class: "rv-row", "data-row": index},
    el("button", {type: "button", class: "rv-play", title: `play ${index + 1} (key ${index + 1})`,
      "aria-label": `play ${index + 1}`, onclick: () => at.play(piece)}, `▶ ${index + 1}`),
    timeField(`start of ${index + 1}`, piece.start, (seconds) => { piece.start = seconds; retimed(); }),
    el("span", {"aria-hidden": "true"}, "–"),
    timeField(`end of ${index + 1}`, piece.end, (seconds) => { piece.end = seconds; retimed(); }),
    ...words(piece, index)));
}

function questionForm(item, draft, at) {
  const asked = item.payload.question, given = item.answer || {};
  const segments = item.payload.segments.map(span);
  const state = draft || {
    question: given.question ?? asked.question, answer: given.answer ?? asked.answer, comment: given.comment ?? "",
    evidence: (given.evidence ?? asked.evidence).map(span),
  };
  const list = el("div", {class: "rv-list"}), rest = el("div", {class: "rv-list rv-segments"});
  const fixed = item.task === "audit";  // an audit says whether the item is right, and changes nothing
  const refresh = () => {
    if (fixed) {
      at.timeline.show(at.duration(), state.evidence, []);
      return list.replaceChildren(...evidenceRows(asked, at));
    }
    at.timeline.show(at.duration(), segments, state.evidence);
    list.replaceChildren(...pieceRows(state.evidence, at, (piece, index) => [
      el("span", {class: "rv-words"}, piece.description),
      el("button", {type: "button", class: "rv-small", "aria-label": `remove evidence ${index + 1}`, title: "remove",
        onclick: () => { state.evidence.splice(index, 1); edited(true); }}, "✕"),
    ], () => { at.timeline.show(at.duration(), segments, state.evidence); at.changed(); }));
    if (!state.evidence.length) list.append(el("p", {class: "rv-note"}, "No evidence. Add a segment from below."));
    rest.replaceChildren(...segments.map((segment, index) => el("div", {class: "rv-row"},
      el("button", {type: "button", class: "rv-small", "aria-label": `add segment ${index + 1}`, title: "add as evidence",
        onclick: () => add(index)}, "+"),
      el("button", {type: "button", class: "rv-play", "aria-label": `play segment ${index + 1}`, onclick: () => at.play(segment)}, `▶ ${index + 1}`),
      el("span", {class: "rv-words"}, `${clockText(segment.start)} – ${clockText(segment.end)}  ${segment.description}`))));
  };
  const edited = (redraw) => { if (redraw) refresh(); at.changed(); };
  const add = (index) => { state.evidence.push({...segments[index]}); edited(true); };
  at.timeline.picked = (index) => at.play((fixed ? state.evidence : segments)[index]);
  at.timeline.moved = (index, start, end, done) => {
    const row = list.querySelector(`[data-row="${index}"]`);
    const fields = row.querySelectorAll(".rv-time");
    fields[0].value = clockText(start); fields[1].value = clockText(end);
    if (done) at.changed();
  };
  const verdicts = (item.payload.verdicts || []).map((one) => one === null ? null : el("p", {class: "rv-note"},
    `${one.judge}: ${Object.entries(one.ratings || {}).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`).join(", ")}. ${one.reason || ""}`));
  const root = el("div", {class: "rv-form"},
    el("p", {class: "rv-kind"}, `${asked.type} question`),
    ...(fixed ? [el("p", {class: "rv-quote"}, asked.question), el("p", {class: "rv-quote"}, asked.answer)]
      : [textArea("Question", state, "question", at.changed), textArea("Answer", state, "answer", at.changed)]),
    el("h3", {}, "Evidence"), list,
    segments.length && !fixed ? el("details", {open: segments.length <= 6}, el("summary", {}, `Segments of the video (${segments.length})`), rest) : null,
    item.payload.why || verdicts.length ? el("details", {}, el("summary", {}, `Why it is here: ${item.payload.why || ""}`), ...verdicts) : null,
    textArea("Comment (if you like)", state, "comment", at.changed, 1));
  const answer = (decision) => fixed ? {decision, comment: state.comment} : ({
    decision, question: state.question, answer: state.answer, comment: state.comment, evidence: state.evidence.map(unspan),
  });
  return {
    root, state, refresh, pieces: () => state.evidence,
    buttons: [
      {label: "Accept", key: "a", kind: "yes", act: () => at.save(answer("accept"))},
      {label: "Reject", key: "r", kind: "no", act: () => at.save({decision: "reject", comment: state.comment})},
    ],
    keys: {e: () => root.querySelector("textarea").focus()},
  };
}

function segmentsForm(item, draft, at) {
  const originals = item.payload.segments.map(span), given = (item.answer || {edits: []}).edits;
  const state = draft || {comment: (item.answer || {}).comment ?? "", segments: originals.map((one, index) => {
    const edit = given.find((change) => change.segment === index) || {};
    const [start, end] = edit.timestamp || [one.start, one.end];
    return {start, end, description: edit.description ?? one.description, drop: edit.drop || false};
  })};
  const list = el("div", {class: "rv-list"});
  const refresh = () => {
    at.timeline.show(at.duration(), [], state.segments);
    list.replaceChildren(...pieceRows(state.segments, at, (piece, index) => {
      const words = el("textarea", {class: "rv-text rv-words", rows: 2, "aria-label": `description ${index + 1}`});
      words.value = piece.description;
      words.addEventListener("input", () => { piece.description = words.value; at.changed(); });
      const drop = el("input", {type: "checkbox", "aria-label": `drop ${index + 1}`});
      drop.checked = piece.drop;
      drop.addEventListener("change", () => { piece.drop = drop.checked; edited(true); });
      return [words, el("label", {class: "rv-drop"}, drop, " drop")];
    }, () => { at.timeline.show(at.duration(), [], state.segments); at.changed(); }));
    state.segments.forEach((piece, index) => list.children[index].classList.toggle("rv-dropped", piece.drop));
  };
  const edited = (redraw) => { if (redraw) refresh(); at.changed(); };
  at.timeline.moved = (index, start, end, done) => {
    const fields = list.querySelector(`[data-row="${index}"]`).querySelectorAll(".rv-time");
    fields[0].value = clockText(start); fields[1].value = clockText(end);
    if (done) at.changed();
  };
  const save = () => at.save({comment: state.comment, edits: state.segments.map((one, index) => {
    if (one.drop) return {segment: index, drop: true};
    const edit = {segment: index}, was = originals[index];
    if (one.start !== was.start || one.end !== was.end) edit.timestamp = [one.start, one.end];
    if (one.description.trim() !== was.description.trim()) edit.description = one.description;
    return edit;
  })});
  const root = el("div", {class: "rv-form"}, el("h3", {}, item.payload.title || item.payload.video.id),
    el("p", {class: "rv-note"}, "Correct times and words where they are wrong; leave the rest as it is."), list,
    textArea("Comment (if you like)", state, "comment", at.changed, 1));
  return {root, state, refresh, pieces: () => state.segments, keys: {},
    buttons: [{label: "Save", key: "s", kind: "yes", act: save}]};
}

const TITLES = {questions: "The question", answers: "The answer", captions: "The caption"};

/** The texts of a pair or caption, a block each, for ratings to stand under. */
function ratedTexts(payload) {
  return payload.kind === "pair" ? {questions: payload.question, answers: payload.answer} : {captions: payload.caption};
}

function evidenceRows(payload, at) {
  return (payload.evidence || []).map(span).map((piece, index) => el("div", {class: "rv-row"},
    el("button", {type: "button", class: "rv-play", "aria-label": `play ${index + 1}`, onclick: () => at.play(piece)}, `▶ ${index + 1}`),
    el("span", {class: "rv-words"}, `${clockText(piece.start)} – ${clockText(piece.end)}  ${piece.description}`)));
}

function ratingForm(item, draft, at) {
  const texts = ratedTexts(item.payload);
  const state = draft || {comment: (item.answer || {}).comment ?? "",
    ratings: structuredClone((item.answer || {}).ratings ?? Object.fromEntries(Object.keys(texts).map((side) => [side, {}])))};
  const rows = [];
  let current = 0;
  const root = el("div", {class: "rv-form"});
  for (const [side, text] of Object.entries(texts)) {
    root.append(el("h3", {}, TITLES[side]), el("p", {class: "rv-quote"}, text));
    for (const name of at.dimensions[side]) {
      const [asks, low, high] = at.meanings[name];
      const place = rows.length, buttons = [1, 2, 3, 4, 5].map((value) => el("button", {
        type: "button", class: "rv-score", role: "radio", "aria-label": `${side} ${name} ${value}`,
        onclick: () => { rate(place, value); }}, String(value)));
      const row = el("div", {class: "rv-rating", role: "radiogroup", "aria-label": `${side} ${name}`},
        el("div", {class: "rv-asks"}, el("b", {}, name), ` ${asks}`),
        el("div", {class: "rv-scale"}, el("small", {}, low), ...buttons, el("small", {}, high)));
      rows.push({side, name, row, buttons});
      root.append(row);
    }
  }
  root.append(...evidenceRows(item.payload, at), textArea("Comment (if you like)", state, "comment", at.changed, 1));
  const draw = () => rows.forEach(({side, name, row, buttons}, place) => {
    row.classList.toggle("rv-current", place === current);
    buttons.forEach((button, index) => {
      const chosen = state.ratings[side][name] === index + 1;
      button.setAttribute("aria-checked", String(chosen));
      button.classList.toggle("rv-chosen", chosen);
    });
  });
  const rate = (place, value) => {
    const {side, name} = rows[place];
    state.ratings[side][name] = value;
    const open = rows.findIndex((row, index) => index > place && state.ratings[row.side][row.name] === undefined);
    current = open >= 0 ? open : Math.min(place + 1, rows.length - 1);
    draw(); at.changed();
  };
  const save = () => {
    const open = rows.findIndex(({side, name}) => state.ratings[side][name] === undefined);
    if (open >= 0) {
      current = open; draw();
      rows[open].row.scrollIntoView({block: "nearest"});
      return at.say(`Rate ${rows[open].name} of the ${rows[open].side.slice(0, -1)} too.`, "bad");
    }
    return at.save({ratings: state.ratings, comment: state.comment});
  };
  const keys = {
    ArrowDown: () => { current = Math.min(rows.length - 1, current + 1); draw(); },
    ArrowUp: () => { current = Math.max(0, current - 1); draw(); },
  };
  for (const value of [1, 2, 3, 4, 5]) keys[String(value)] = () => rate(current, value);
  draw();
  const evidence = (item.payload.evidence || []).map(span);
  at.timeline.picked = (index) => at.play(evidence[index]);
  return {root, state, keys, pieces: () => [], refresh: () => at.timeline.show(at.duration(), evidence, []),
    buttons: [{label: "Save", key: "Enter", kind: "yes", act: save}]};
}

function metaForm(item, draft, at) {
  const state = draft || {reason: (item.answer || {}).reason ?? ""};
  const root = el("div", {class: "rv-form"});
  for (const [side, text] of Object.entries(ratedTexts(item.payload))) {
    root.append(el("h3", {}, TITLES[side]), el("p", {class: "rv-quote"}, text));
    const table = el("table", {class: "rv-table"}, el("tr", {}, el("th", {}, ""), ...item.ratings.map((_, n) => el("th", {}, `rater ${n + 1}`))));
    for (const name of at.dimensions[side]) {
      table.append(el("tr", {}, el("td", {}, name), ...item.ratings.map((one) => {
        const value = one.ratings[side][name];
        return el("td", {class: value <= 2 ? "rv-low" : ""}, String(value));
      })));
    }
    root.append(table);
  }
  root.append(...item.ratings.filter((one) => one.comment).map((one) => el("p", {class: "rv-note"}, `“${one.comment}”`)),
    ...evidenceRows(item.payload, at), textArea("Reason", state, "reason", at.changed, 2));
  const decide = (decision) => () => {
    if (!state.reason.trim()) {
      root.querySelector("textarea").focus();
      return at.say("Give a reason.", "bad");
    }
    return at.save({decision, reason: state.reason});
  };
  return {root, state, keys: {e: () => root.querySelector("textarea").focus()}, pieces: () => [],
    refresh: () => at.timeline.show(at.duration(), (item.payload.evidence || []).map(span), []),
    buttons: [{label: "Keep", key: "k", kind: "yes", act: decide("keep")}, {label: "Remove", key: "x", kind: "no", act: decide("remove")}]};
}
