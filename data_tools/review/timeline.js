// The timeline: the record's segments above, the pieces being edited below, both to scale, and the playhead.

const SNAP_PX = 6;

class Timeline {
  /** duration in seconds. seek(seconds), moved(index, start, end, done) and picked(segment index) are called. */
  constructor({seek, moved, picked}) {
    this.seek = seek; this.moved = moved; this.picked = picked;
    this.duration = 0; this.segments = []; this.pieces = [];
    this.lanes = el("div", {class: "rv-lanes"});
    this.track = el("div", {class: "rv-track"});
    this.head = el("div", {class: "rv-head"});
    this.axis = el("div", {class: "rv-axis", "aria-hidden": "true"});
    this.root = el("div", {class: "rv-timeline"}, this.lanes, this.track, this.axis, this.head);
    this.track.addEventListener("pointerdown", (event) => {
      if (event.target === this.track) this.seek(this.secondsAt(event));
    });
  }

  secondsAt(event) {
    const box = this.track.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * this.duration;
  }

  show(duration, segments, pieces) {
    this.duration = duration > 0 ? duration : 1;
    this.segments = segments; this.pieces = pieces;
    this.lanes.replaceChildren(...this.laneRows());
    this.track.replaceChildren(...pieces.map((piece, index) => this.bar(piece, index)));
    this.track.style.height = `${Math.max(1, pieces.length) * 30 + 4}px`;
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => {
      const tick = el("span", {}, clockText(part * this.duration));
      tick.style.left = `${100 * part}%`;
      return tick;
    });
    this.axis.replaceChildren(...ticks);
  }

  place(element, start, end) {
    const left = Math.min(100, Math.max(0, 100 * start / this.duration));
    element.style.left = `${left}%`;
    element.style.width = `${Math.max(0.4, Math.min(100, 100 * end / this.duration) - left)}%`;
  }

  /** Segments that overlap lie in rows of their own. */
  laneRows() {
    const ends = [], rows = [];
    const order = this.segments.map((one, index) => [one, index]).sort((a, b) => a[0].start - b[0].start);
    for (const [segment, index] of order) {
      let lane = ends.findIndex((end) => end <= segment.start);
      if (lane < 0) { lane = ends.length; ends.push(0); rows.push(el("div", {class: "rv-lane"})); }
      ends[lane] = segment.end;
      const bar = el("button", {
        type: "button", class: "rv-segment", title: `${clockText(segment.start)} to ${clockText(segment.end)}: ${segment.description}`,
        "aria-label": `segment ${index + 1}`, onclick: () => this.picked(index),
      }, String(index + 1));
      this.place(bar, segment.start, segment.end);
      rows[lane].append(bar);
    }
    return rows;
  }

  bar(piece, index) {
    const bar = el("div", {class: "rv-piece", "data-index": index}, el("span", {class: "rv-number"}, String(index + 1)));
    bar.style.top = `${index * 30 + 3}px`;
    this.place(bar, piece.start, piece.end);
    for (const edge of ["start", "end"]) {
      const handle = el("div", {
        class: `rv-handle rv-${edge}`, role: "slider", tabindex: "0", "aria-label": `drag the ${edge} of ${index + 1}`,
        "aria-valuemin": 0, "aria-valuemax": this.duration, "aria-valuenow": piece[edge],
        "aria-valuetext": clockText(piece[edge]),
        onkeydown: (event) => {
          const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
          if (!step) return;
          event.preventDefault(); event.stopPropagation();
          this.move(index, edge, piece[edge] + step * (event.shiftKey ? 0.1 : 0.5), 0, true);
        },
      });
      handle.addEventListener("pointerdown", (event) => this.drag(event, index, edge));
      bar.append(handle);
    }
    bar.addEventListener("pointerdown", (event) => this.drag(event, index, "both"));
    return bar;
  }

  drag(event, index, edge) {
    event.preventDefault(); event.stopPropagation();
    const piece = this.pieces[index], from = this.secondsAt(event), start = piece.start;
    const perPixel = this.duration / this.track.getBoundingClientRect().width;
    let dragged = false;
    const move = (moving) => {
      const now = this.secondsAt(moving);
      if (!dragged && Math.abs(now - from) < 3 * perPixel) return;
      dragged = true;
      this.move(index, edge, edge === "both" ? start + now - from : now, SNAP_PX * perPixel, false);
    };
    const up = () => {
      window.removeEventListener("pointermove", move);
      window.removeEventListener("pointerup", up);
      window.removeEventListener("pointercancel", up);
      if (dragged) this.moved(index, piece.start, piece.end, true);
      else this.seek(edge === "end" ? Math.max(piece.start, piece.end - 1) : piece.start);
    };
    window.addEventListener("pointermove", move);
    window.addEventListener("pointerup", up);
    window.addEventListener("pointercancel", up);
  }

  /** Move an edge, or the whole piece, to a time in seconds; edges of segments within `snap` seconds attract. */
  move(index, edge, seconds, snap, done) {
    const piece = this.pieces[index], length = piece.end - piece.start;
    const edges = this.segments.flatMap((one) => [one.start, one.end]);
    const near = edges.map((one) => [Math.abs(one - seconds), one]).sort((a, b) => a[0] - b[0])[0];
    let at = near && near[0] <= snap ? near[1] : Math.round(seconds * 10) / 10;
    if (edge === "start") piece.start = Math.min(Math.max(0, at), piece.end - 0.1);
    else if (edge === "end") piece.end = Math.max(Math.min(this.duration, at), piece.start + 0.1);
    else {
      at = Math.max(0, Math.min(at, this.duration - length));
      piece.start = at; piece.end = at + length;
    }
    for (const name of ["start", "end"]) piece[name] = Math.round(piece[name] * 1000) / 1000;
    const bar = this.track.querySelector(`[data-index="${index}"]`);
    this.place(bar, piece.start, piece.end);
    for (const name of ["start", "end"]) {
      const handle = bar.querySelector(`.rv-${name}`);
      handle.setAttribute("aria-valuenow", piece[name]);
      handle.setAttribute("aria-valuetext", clockText(piece[name]));
    }
    this.moved(index, piece.start, piece.end, done);
  }

  playhead(seconds) {
    this.head.style.left = `${100 * Math.min(1, Math.max(0, seconds / this.duration))}%`;
  }
}
