// How a plane is touched: by a mouse, a finger or a pen, and by the keyboard.
const REACH = { mouse: 14, pen: 18, touch: 26 };
const STEPS = 60; // presses of an arrow from side to side; with Shift, a fifth of them

const isUndo = ({ ctrlKey, metaKey, altKey, shiftKey, key }) => (ctrlKey || metaKey) && !altKey && !shiftKey && key.toLowerCase() === "z";

export function listen(plane, room) {
  const { svg } = plane;
  let held = null, isHandle = false, before = null, pressed = null, start = null;

  const at = event => {
    const { left, top, width } = svg.getBoundingClientRect(), scale = plane.size / width;
    return [(event.clientX - left) * scale, (event.clientY - top) * scale];
  };

  // A finger on a handle drags it, elsewhere it may scroll the page: what lies in an SVG has no `touch-action` of its
  // own. The pointer has told by then what is held.
  svg.addEventListener("touchstart", event => { if (isHandle) event.preventDefault(); }, { passive: false });

  svg.addEventListener("pointerdown", event => {
    if (event.button !== 0) return;
    room.isByKey = false;
    const place = at(event), handle = plane.under(place, room.points, room.space, REACH[event.pointerType] ?? REACH.mouse);
    held = handle ?? { kind: "query" };
    isHandle = handle !== null;
    start = [...room.points.query]; // of the query
    svg.setPointerCapture(event.pointerId);
    svg.classList.add("is-held");
    // A double click adds a key: the query, which the first click moves, goes back then.
    if (!pressed || event.timeStamp - pressed.time > 400) pressed = { time: event.timeStamp, handle, query: [...room.points.query] };
    const [x, y] = plane.at(room.points.placeOf(held, room.space));
    // What is taken at its edge does not jump to the pointer.
    before = handle && !(held.kind === "query" && room.space === "heights") ? [x - place[0], y - place[1]] : [0, 0];
    room.choose(held);
    if (!handle) room.move(held, plane.back(place));
  });

  svg.addEventListener("pointermove", event => {
    if (!held) {
      svg.classList.toggle("is-over", event.pointerType === "mouse" && plane.under(at(event), room.points, room.space, REACH.mouse) !== null);
      return;
    }
    const [x, y] = at(event);
    room.move(held, plane.back([x + before[0], y + before[1]]));
  });

  const release = () => {
    held = null;
    svg.classList.remove("is-held");
  };
  svg.addEventListener("pointerup", release);
  // A finger that scrolls the page has not asked for anything: the query goes back.
  svg.addEventListener("pointercancel", () => {
    if (held && !isHandle) room.move(held, start);
    release();
  });

  svg.addEventListener("dblclick", event => {
    if (pressed?.handle) return;
    if (pressed) room.points.query = pressed.query;
    room.add(plane.back(at(event)));
  });

  const keys = {
    n: () => room.step(1), p: () => room.step(-1), q: () => room.choose({ kind: "query" }), Escape: () => room.choose({ kind: "query" }),
    a: () => room.add(), m: () => room.toggle(), Delete: () => room.remove(), Backspace: () => room.remove(),
  };
  const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

  svg.addEventListener("keydown", event => {
    if (isUndo(event)) {
      event.preventDefault();
      room.isByKey = true;
      return room.undo();
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = arrows[event.key], work = keys[event.key] ?? keys[event.key.toLowerCase()];
    if (!arrow && !work) return;
    event.preventDefault();
    room.isByKey = true;
    if (!arrow) return work();
    if (!event.repeat) room.points.endGesture(); // a press is a change of its own, an arrow that is held is one
    const { chosen } = room.points, { across, up } = room.points.axes(room.space), far = event.shiftKey ? 5 : 1;
    const place = room.points.placeOf(chosen, room.space);
    room.move(chosen, [across, up].map(([low, high], axis) => place[axis] + (arrow[axis] * far * (high - low)) / STEPS));
  });
}
