// How the query is moved over the picture: by a mouse, a finger or a pen, and by the keyboard.
import { rounded, stepOf } from "./table-axes.js";

export function listen(room) {
  const { plot, handle } = room;
  let held = false;

  const move = event => {
    if (!room.picture) return;
    const { left } = plot.getBoundingClientRect();
    const column = room.columns[room.keys[room.along]], at = room.picture.back(event.clientX - left);
    if (column.role === "line") room.ask(room.along, Math.min(Math.max(rounded(column, at, 400), Math.min(column.low, at)), Math.max(column.high, at)));
    else room.ask(room.along, room.points.columns[Math.min(Math.max(Math.round(at), 0), room.points.columns.length - 1)]);
  };

  plot.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    held = true;
    plot.setPointerCapture(event.pointerId);
    plot.classList.add("is-held");
    handle.focus({ preventScroll: true });
    move(event);
    event.preventDefault(); // no text is selected on the way
  });
  plot.addEventListener("pointermove", event => { if (held) move(event); });
  const release = () => {
    held = false;
    plot.classList.remove("is-held");
  };
  plot.addEventListener("pointerup", release);
  plot.addEventListener("pointercancel", release);

  handle.addEventListener("keydown", event => {
    if (!room.picture || event.ctrlKey || event.metaKey || event.altKey) return;
    const column = room.columns[room.keys[room.along]], isLine = column.role === "line";
    const lines = isLine ? null : room.points.columns, now = isLine ? room.query[room.along] : Math.max(lines.indexOf(room.query[room.along]), 0);
    const step = isLine ? stepOf(column) : 1, far = event.shiftKey ? 10 : 1, [low, high] = isLine ? [column.low, column.high] : [0, lines.length - 1];
    const moves = { ArrowLeft: -step * far, ArrowDown: -step * far, ArrowRight: step * far, ArrowUp: step * far, PageDown: -10 * step, PageUp: 10 * step, Home: low - now, End: high - now };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const to = Math.min(Math.max(now + moves[event.key], low), high);
    const ends = event.key === "Home" || event.key === "End";
    room.ask(room.along, isLine ? (ends ? to : Math.min(Math.max(rounded(column, to), low), high)) : lines[to]);
  });
}
