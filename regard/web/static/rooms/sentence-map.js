// The map of a long text: what is visible is asked for at the level of detail that is visible, and no more.
import { element, shape, text as words } from "../elements.js";
import { latest } from "../server.js";
import { fail } from "../said.js";
import { largestOf, onTheme } from "../numbers.js";
import { button } from "../controls.js";
import { cut } from "../weights.js";
import { numbers, paint } from "./sentence-overview.js";

const LEFT = 92, TOP = 74, RIGHT = 26, BOTTOM = 6, ROW = 13, COLUMN = 15; // around the map, and between two names
const NEAREST = 12; // words on a side
const REST = 50; // milliseconds without a movement until more detail is asked for
const LETTERS = 13, LETTER = 6.4; // of a name at most, and how wide one is about

// The first and the last place in a cell of a span of so many cells. Cells are of one size: the last may reach beyond the places there are.
export function within([from, to], count, at, most) {
  const size = (to - from) / count, first = Math.ceil(from + at * size - 1e-9);
  return [first, Math.max(Math.min(Math.ceil(from + (at + 1) * size - 1e-9), most) - 1, first)];
}

// `fetch(rows, columns, size, signal)` answers with a part of the map.
export function zoomMap({ fetch, onchoose, onpoint, onpart }) {
  const canvas = element("canvas", {
    class: "zoom", tabindex: "0", role: "application",
    "aria-label": "Map of weights. Plus and minus zoom, arrows move, 0 shows all, square brackets choose a word.",
  });
  const buttons = element("div", { class: "zoom-buttons", role: "group", "aria-label": "Zoom" },
    button("+", () => zoom(0.5), { "aria-label": "Zoom in", title: "Zoom in (+)" }),
    button("−", () => zoom(2), { "aria-label": "Zoom out", title: "Zoom out (−)" }),
    button("All", () => { whole(); moved(); }, { "aria-label": "Show all", title: "Show all (0)" }));
  const root = element("div", { class: "zoomed" }, canvas, buttons);
  const asking = latest();
  let rows = [], columns = [], seen = null, parts = [], chosen = null, waiting = null, width = 560, ended = false, pointer = null, awaited = null;

  const inside = () => width - LEFT - RIGHT;
  const whole = () => { seen = { top: 0, left: 0, height: rows.length, width: columns.length }; };

  function bound() {
    seen.height = Math.min(Math.max(seen.height, Math.min(NEAREST, rows.length)), rows.length);
    seen.width = Math.min(Math.max(seen.width, Math.min(NEAREST, columns.length)), columns.length);
    seen.top = Math.min(Math.max(seen.top, 0), rows.length - seen.height);
    seen.left = Math.min(Math.max(seen.left, 0), columns.length - seen.width);
  }

  function zoom(factor, x = 0.5, y = 0.5) {
    const height = Math.min(Math.max(seen.height * factor, NEAREST), rows.length), wide = Math.min(Math.max(seen.width * factor, NEAREST), columns.length);
    seen = { top: seen.top + y * (seen.height - height), left: seen.left + x * (seen.width - wide), height, width: wide };
    moved();
  }

  function moved() {
    bound();
    draw();
    tellPointed();
    clearTimeout(waiting);
    waiting = setTimeout(more, REST);
  }

  async function more() {
    const span = (start, length, size) => [Math.floor(start), Math.min(Math.ceil(start + length), size)];
    const [down, across] = [span(seen.top, seen.height, rows.length), span(seen.left, seen.width, columns.length)];
    const cells = Math.min(Math.round(inside() * Math.min(devicePixelRatio, 1.5)), 768);
    try {
      const found = await asking(signal => fetch(down, across, [cells, cells], signal));
      if (found === undefined || ended) return;
      const weights = numbers(found.weights), part = { ...found, weights, canvas: element("canvas"), largest: found.largest || largestOf(weights) };
      const isWhole = down[0] === 0 && across[0] === 0 && down[1] === rows.length && across[1] === columns.length;
      parts = isWhole ? [part] : [...parts.filter(each => each.isWhole), part];
      part.isWhole = isWhole;
      tint(part);
      draw();
      root.classList.remove("busy");
      onpart(part);
      tellPointed();
      arrived(each => each.resolve(true));
    } catch (error) {
      if (awaited) arrived(each => each.reject(error));
      else fail(error);
    }
  }

  // Who asked for another map waits for a part of it, which a movement meanwhile makes another part.
  function arrived(tell) {
    const each = awaited;
    awaited = null;
    if (each) tell(each);
  }

  const tint = part => paint(part.canvas, part.weights, part.size[0], part.size[1], part.largest);
  const x = column => LEFT + ((column - seen.left) / seen.width) * inside();
  const y = row => TOP + ((row - seen.top) / seen.height) * inside();

  function draw() {
    if (!seen || ended) return;
    const ratio = devicePixelRatio || 1, style = getComputedStyle(canvas);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((inside() + TOP + BOTTOM) * ratio);
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = false;
    context.save();
    context.beginPath();
    context.rect(LEFT, TOP, inside(), inside());
    context.clip();
    for (const each of parts) {
      const [[r0, r1], [c0, c1]] = [each.rows, each.columns];
      context.drawImage(each.canvas, x(c0), y(r0), x(c1) - x(c0), y(r1) - y(r0));
    }
    const ink = style.getPropertyValue("--ink"), mark = style.getPropertyValue("--mark");
    if (chosen !== null) {
      context.strokeStyle = mark;
      context.lineWidth = 1.5;
      context.strokeRect(LEFT + 1, y(chosen) - 0.75, inside() - 2, Math.max(y(chosen + 1) - y(chosen), 1) + 1.5);
    }
    context.restore();
    context.strokeStyle = style.getPropertyValue("--faint");
    context.lineWidth = 1;
    context.strokeRect(LEFT + 0.5, TOP + 0.5, inside() - 1, inside() - 1);
    context.font = "11px system-ui, sans-serif";
    for (const { name, at, place } of labels(rows, seen.top, seen.height, ROW)) {
      context.fillStyle = place === chosen ? mark : ink;
      context.textAlign = "right";
      context.fillText(name, LEFT - 6, TOP + at + 4);
    }
    context.fillStyle = ink;
    context.textAlign = "left";
    for (const { name, at } of slanted()) {
      context.save();
      context.translate(LEFT + at + 3, TOP - 6);
      context.rotate(-Math.PI / 3);
      context.fillText(name, 0, 0);
      context.restore();
    }
  }

  // As many names as there is room for, each at the middle of its cell.
  function labels(names, start, length, apart) {
    const step = Math.max(Math.ceil((apart * length) / inside()), 1), found = [];
    const first = Math.ceil(start / step) * step;
    for (let place = first; place < Math.min(start + length, names.length); place += step) {
      const at = ((place + 0.5 - start) / length) * inside();
      if (at <= inside()) found.push({ place, at, name: cut(names[place], LETTERS) });
    }
    return found;
  }

  // Of names that lean to the right the last have less room.
  const slanted = () => labels(columns, seen.left, seen.width, COLUMN).map(each =>
    ({ ...each, name: cut(each.name, Math.max(Math.floor((2 * (inside() + RIGHT - each.at - 6)) / LETTER), 2)) }));

  // What is under a pointer: a row and a column, and the cell of what was last asked for.
  function under(event) {
    const box = canvas.getBoundingClientRect(), scale = width / box.width;
    const across = ((event.clientX - box.left) * scale - LEFT) / inside(), down = ((event.clientY - box.top) * scale - TOP) / inside();
    return { across, down, row: Math.floor(seen.top + down * seen.height), column: Math.floor(seen.left + across * seen.width), isInside: across >= 0 && across < 1 && down >= 0 && down < 1 };
  }

  function cellAt({ row, column }) {
    const part = parts.at(-1);
    if (!part) return null;
    const [[r0, r1], [c0, c1]] = [part.rows, part.columns], [height, wide] = part.size;
    if (row < r0 || row >= r1 || column < c0 || column >= c1) return null;
    const [cellDown, cellAcross] = [(r1 - r0) / height, (c1 - c0) / wide];
    const [down, across] = [Math.floor((row - r0) / cellDown + 1e-9), Math.floor((column - c0) / cellAcross + 1e-9)];
    return { rows: within(part.rows, height, down, rows.length), columns: within(part.columns, wide, across, columns.length), weight: part.weights[down * wide + across] };
  }

  // The map moves under a pointer that rests, and finer cells take the place of coarser ones.
  function tellPointed() {
    const at = pointer && under(pointer);
    onpoint(at?.isInside ? cellAt(at) : null);
  }

  const pointers = new Map();
  let drag = null;
  const spread = () => {
    const [one, other] = [...pointers.values()];
    return Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
  };
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    drag = { x: event.clientX, y: event.clientY, moved: drag?.moved ?? false, spread: pointers.size === 2 ? spread() : null };
  });
  canvas.addEventListener("pointermove", event => {
    const at = under(event);
    if (!pointers.has(event.pointerId)) {
      pointer = event;
      tellPointed();
      return;
    }
    pointers.set(event.pointerId, event);
    const scale = width / canvas.getBoundingClientRect().width;
    if (pointers.size === 2) {
      const now = spread();
      if (drag.spread) zoom(drag.spread / (now || 1), at.across, at.down);
      drag = { ...drag, spread: now, moved: true };
      return;
    }
    const [dx, dy] = [(event.clientX - drag.x) * scale, (event.clientY - drag.y) * scale];
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    seen.left -= (dx / inside()) * seen.width;
    seen.top -= (dy / inside()) * seen.height;
    drag = { ...drag, x: event.clientX, y: event.clientY, moved: true };
    moved();
  });
  const released = event => {
    if (!pointers.delete(event.pointerId)) return;
    const at = under(event);
    if (event.type === "pointerup" && drag && !drag.moved && at.down >= 0 && at.down < 1 && at.row < rows.length) onchoose(at.row);
    drag = pointers.size ? { ...drag, x: [...pointers.values()][0].clientX, y: [...pointers.values()][0].clientY, spread: null } : null;
  };
  canvas.addEventListener("pointerup", released);
  canvas.addEventListener("pointercancel", released);
  canvas.addEventListener("pointerleave", () => { pointer = null; onpoint(null); });
  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    const at = under(event);
    zoom(Math.exp(Math.min(Math.max(event.deltaY, -120), 120) / 300), Math.min(Math.max(at.across, 0), 1), Math.min(Math.max(at.down, 0), 1));
  }, { passive: false });
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !seen) return;
    const pan = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (pan) {
      seen.left += (pan[0] * seen.width) / 8;
      seen.top += (pan[1] * seen.height) / 8;
      moved();
    } else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-" || event.key === "−") zoom(2);
    else if (event.key === "0") { whole(); moved(); }
    else if (event.key === "[" || event.key === "]") onchoose(Math.min(Math.max((chosen ?? -1) + (event.key === "]" ? 1 : -1), 0), rows.length - 1));
    else return;
    event.preventDefault();
  });

  const sized = new ResizeObserver(([{ contentRect }]) => {
    if (!contentRect.width || Math.abs(contentRect.width - width) < 1) return;
    width = contentRect.width;
    if (seen) moved();
  });
  sized.observe(root);
  const offTheme = onTheme(() => { parts.forEach(tint); draw(); });

  return {
    root,
    // Other words are shown from afar; another head of the same where the reader is. Whether it was: false where a later one began.
    show(queries, keys, isOther) {
      [rows, columns] = [queries, keys];
      if (isOther || !seen) {
        whole();
        parts = [];
      }
      width = root.clientWidth || width;
      root.classList.add("busy");
      bound();
      draw();
      clearTimeout(waiting);
      arrived(each => each.resolve(false));
      return new Promise((resolve, reject) => {
        awaited = { resolve, reject };
        more();
      });
    },
    mark(row) {
      chosen = row;
      if (seen && row !== null && (row < seen.top || row >= seen.top + seen.height)) {
        seen.top = row - seen.height / 2;
        moved();
      } else draw();
    },
    get part() { return parts.at(-1); },
    get seen() { return seen; },
    // What is visible as a drawing: the map as an image, the names as text.
    picture(label) {
      const part = parts.at(-1), size = inside();
      const drawn = shape("svg", { viewBox: `0 0 ${Math.round(width)} ${Math.round(size + TOP + BOTTOM)}`, role: "img", "aria-label": label },
        shape("image", { x: LEFT, y: TOP, width: size, height: size, preserveAspectRatio: "none", href: visible(part, size) }),
        ...labels(rows, seen.top, seen.height, ROW).map(({ name, at }) => words(LEFT - 6, TOP + at + 4, name, "ink small", "end")),
        ...slanted().map(({ name, at }) => words(LEFT + at + 3, TOP - 6, name, "ink small", "start", { transform: `rotate(-60 ${LEFT + at + 3} ${TOP - 6})` })));
      return drawn;
    },
    end() {
      ended = true;
      asking.end();
      arrived(each => each.resolve(false));
      clearTimeout(waiting);
      sized.disconnect();
      offTheme();
    },
  };

  function visible(part, size) {
    const cropped = element("canvas", { width: Math.round(2 * size), height: Math.round(2 * size) }), context = cropped.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.scale(2, 2);
    context.translate(-LEFT, -TOP);
    for (const each of parts) context.drawImage(each.canvas, x(each.columns[0]), y(each.rows[0]), x(each.columns[1]) - x(each.columns[0]), y(each.rows[1]) - y(each.rows[0]));
    return part ? cropped.toDataURL("image/png") : "";
  }
}
