// Times as people write them, and elements made without markup: text from datasets is only ever a text node.

/** Seconds as m:ss.s, or h:mm:ss.s. */
function clockText(seconds) {
  const tenths = Math.round(Math.max(0, seconds) * 10);
  const whole = Math.floor(tenths / 10), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  const rest = String(whole % 60).padStart(2, "0") + "." + (tenths % 10);
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/** Seconds of "75", "75.5", "75,5", "1:15.5" or "1:02:03"; NaN for anything else. */
function readClock(text) {
  const parts = text.trim().replace(",", ".").split(":");
  if (parts.length > 3 || !parts.every((part) => /^\d+(\.\d+)?$/.test(part))) return NaN;
  if (parts.slice(0, -1).some((part) => part.includes("."))) return NaN;
  return parts.reduce((sum, part) => sum * 60 + Number(part), 0);
}

/** An element; `on…` attributes are listeners, other values attributes, children nodes or texts. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** A text field for a time; calls changed(seconds) with times that can be read, and marks the others. */
function timeField(label, seconds, changed) {
  const field = el("input", {type: "text", class: "rv-time", "aria-label": label, inputmode: "text", autocomplete: "off"});
  field.value = clockText(seconds);
  field.addEventListener("change", () => {
    const read = readClock(field.value);
    field.classList.toggle("rv-wrong", Number.isNaN(read));
    field.setAttribute("aria-invalid", String(Number.isNaN(read)));
    if (Number.isNaN(read)) return;
    field.value = clockText(read);
    changed(read);
  });
  return field;
}
