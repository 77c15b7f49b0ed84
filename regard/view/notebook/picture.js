// One head of a view or a recording, as a notebook shows it: its map, at the level of detail that is looked at, and what
// one query attends to. Everything is asked of Python; what is no number comes in words, so that one place chooses them.
// One file, since a widget's module can import no other.
const NEAREST = 8; // queries or keys on a side of what is looked at, at least
const CELL = 40, TALLEST = 520; // pixels of a cell, and of a map
const MOST = 512; // cells on a side that Python sends at most
const REST = 60; // milliseconds without a movement until more detail is asked for
const LISTED = 64; // choices up to which a picker lists them
const ROW = 14, COLUMN = 15, NUMBER = 24; // pixels between two names, and between two numbers below each other

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value);
  }
  node.append(...children.filter(each => each !== null)); // texts as text, never as markup
  return node;
}
const clamped = (value, low, high) => Math.min(Math.max(value, low), high);
const cut = (words, most) => ([...words].length <= most ? words : `${[...words].slice(0, most - 1).join("")}…`);

// Questions to Python, each answered once: several pictures of one model hear all answers.
function asking(model) {
  const mine = Math.random().toString(36).slice(2), open = new Map();
  let count = 0;
  const heard = (content, buffers) => {
    const question = open.get(content.to);
    if (!question || !open.delete(content.to)) return;
    const [packed] = buffers ?? [];
    const weights = packed && new Float32Array(packed.buffer.slice(packed.byteOffset, packed.byteOffset + packed.byteLength));
    if (content.error) question.fail(new Error(content.error));
    else question.done({ ...content, weights: weights ?? content.weights });
  };
  model.on("msg:custom", heard);
  return {
    ask: question => new Promise((done, fail) => {
      const from = `${mine} ${(count += 1)}`;
      open.set(from, { done, fail });
      model.send({ ...question, from });
    }),
    end: () => model.off("msg:custom", heard),
  };
}

// While one question is open, only the newest of those after it is kept: a kernel answers one after the other.
function newest(ask, done, fail) {
  let isBusy = false, next = null;
  return async question => {
    next = question;
    if (isBusy) return;
    isBusy = true;
    while (next) {
      const now = next;
      next = null;
      try {
        const found = await ask(now);
        if (!next) done(found, now);
      } catch (error) {
        if (!next) fail(error);
      }
    }
    isBusy = false;
  };
}

function render({ model, el }) {
  const layers = model.get("layers"), names = model.get("names"), { levels, power } = model.get("scale");
  const python = asking(model);
  let chosen = model.get("chosen"), seen = null, widest = null, parts = [], cursor = 0, waiting = null, box = null, isEnded = false;
  const layer = () => layers[chosen.layer];
  const sizes = () => [layer().queries, layer().keys];
  const nameOf = (side, place) => (names ? `“${names[side][place]}”` : `${side ? "key" : "query"} ${place}`);
  const told = weight => (!Number.isFinite(weight) ? "no number" : `${Number(((layer().shares ? 100 : 1) * weight).toPrecision(3))}${layer().shares ? "%" : ""}`);

  // What stands on the page -----------------------------------------------------------------------------------------
  const still = make("div", { class: "still" }), pickers = make("div", { class: "pickers", role: "group", "aria-label": "What is shown" });
  const trouble = make("p", { class: "trouble", role: "alert" }), status = make("p", { class: "status", role: "status" });
  const canvas = make("canvas", { class: "map", tabindex: "0", role: "application" });
  const stage = make("div", { class: "stage" }, canvas), legend = make("div", { class: "legend" });
  const pointed = make("p", { class: "pointed", "aria-hidden": "true" }), caption = make("p", { class: "caption" });
  const button = (words, label, onclick) => make("button", { type: "button", "aria-label": label, title: label, onclick }, words);
  const zooms = make("div", { class: "zooms", role: "group", "aria-label": "Zoom" },
    button("+", "Zoom in (+)", () => zoom(0.5)), button("−", "Zoom out (−)", () => zoom(2)), button("All", "Show all (0)", () => all()));
  const query = make("input", { type: "number", min: "0", step: "1", onchange: () => choose({ query: clamped(Math.round(Number(query.value) || 0), 0, layer().queries - 1) }) });
  const called = make("span", { class: "called" }), list = make("ol"), spread = make("p", { class: "caption" }), heard = make("p", { class: "unheard", role: "status" });
  const row = make("section", { class: "row", "aria-label": "One query" },
    make("h4", {}, make("label", {}, "Query ", query), called), list, spread, heard);
  const title = make("p", {}, make("b", {}, model.get("title")));
  // Lumino leaves the keys of what says so alone, or a notebook would act on them, too.
  const root = make("div", { class: "regard-picture", "data-lm-suppress-shortcuts": "true" },
    still, pickers, trouble, status, make("div", { class: "panes" }, make("figure", {}, stage, make("div", { class: "below" }, legend, zooms), caption, pointed), row));
  still.innerHTML = model.get("still"); // of Python's own making, whose names are escaped there
  const heads = [...still.querySelectorAll("g[data-head]")];
  for (const each of heads)
    each.addEventListener("click", () => choose({ layer: Number(each.dataset.layer), entry: withHead(Number(each.dataset.layer), Number(each.dataset.head)) }));
  el.replaceChildren(root);

  // What is chosen ----------------------------------------------------------------------------------------------------
  function withHead(place, head) {
    const axes = layers[place].axes, kept = axes.map(({ size }, axis) => Math.min(chosen.entry[axis] ?? 0, size - 1));
    return axes.length ? [...kept.slice(0, -1), head ?? kept.at(-1)] : [];
  }
  function choose(given) {
    const next = { ...chosen, ...given };
    if (given.layer !== undefined && !given.entry) next.entry = withHead(given.layer);
    next.query = clamped(next.query, 0, layers[next.layer].queries - 1);
    model.set("chosen", next);
    model.save_changes();
    follow(next); // at once: not every front end says that a change of its own was one
  }
  function follow(next = model.get("chosen")) {
    const before = chosen, isOther = next.layer !== before.layer || String(next.entry) !== String(before.entry);
    const [rows, columns] = sizes();
    chosen = next;
    if (isOther) {
      if (String([rows, columns]) !== String(sizes())) seen = null;
      parts = [];
      fillPickers();
      show();
    } else if (next.query !== before.query) {
      bring();
      draw();
      askRow({ asks: "row" });
    }
  }
  // A picker lists what there are few of, and takes a number for the rest.
  function picker(label, count, value, words, onchange) {
    const input = count <= LISTED
      ? make("select", {}, ...Array.from({ length: count }, (_, place) => make("option", { value: place }, words(place))))
      : make("input", { type: "number", min: "0", max: count - 1, step: "1" });
    input.value = value;
    input.addEventListener("change", () => onchange(clamped(Math.round(Number(input.value) || 0), 0, count - 1)));
    return make("label", {}, `${label} `, input, count <= LISTED ? null : ` of ${count.toLocaleString("en")}${words(value) === String(value) ? "" : `: ${words(value)}`}`);
  }
  function fillPickers() {
    const focus = [...pickers.querySelectorAll("select, input")].indexOf(document.activeElement);
    const axis = (place, value) => chosen.entry.map((each, at) => (at === place ? value : each));
    pickers.replaceChildren(
      ...(layers.length > 1 ? [picker("Layer", layers.length, chosen.layer, place => layers[place].name, value => choose({ layer: value }))] : []),
      ...layer().axes.flatMap(({ label, size }, place) => (size > 1 ? [picker(label, size, chosen.entry[place], String, value => choose({ entry: axis(place, value) }))] : [])),
    );
    if (focus >= 0) pickers.querySelectorAll("select, input")[focus]?.focus();
    for (const each of heads)
      each.classList.toggle("is-chosen", Number(each.dataset.layer) === chosen.layer && Number(each.dataset.head) === (chosen.entry.at(-1) ?? 0));
  }

  // What Python answers -----------------------------------------------------------------------------------------------
  let late = null;
  const ask = question => {
    clearTimeout(late);
    late = setTimeout(() => { status.textContent = "Waiting for Python, which answers when no cell runs. In a notebook that was saved or restarted, run the cell again."; }, 500);
    return python.ask({ ...question, layer: chosen.layer, entry: chosen.entry, query: chosen.query });
  };
  const troubles = {}; // of the map and of the row: what one is told does not undo what is wrong with the other
  const settle = (of, error) => {
    clearTimeout(late);
    status.textContent = "";
    troubles[of] = error?.message;
    trouble.textContent = [...new Set(Object.values(troubles).filter(Boolean))].join(" ");
    root.classList.toggle("is-wrong", trouble.textContent !== "");
  };
  const askMap = newest(ask, (found, asked) => {
    if (isEnded) return;
    settle("map");
    if (!heads.length) still.replaceChildren(title);
    if (asked.isWhole && String(found.widest) !== String(sizes())) seen = windowOf(found);
    widest = found.widest;
    const part = { ...found, canvas: document.createElement("canvas"), isWhole: [found.rows, found.columns].every(([from, to], side) => from === 0 && to >= sizes()[side]) };
    parts = part.isWhole ? [part] : [...parts.filter(each => each.isWhole), part];
    paint(part);
    legend.replaceChildren(...found.legend.map((words, at) => {
      const swatch = make("i", { "aria-hidden": "true" });
      swatch.style.background = `var(--w${(at * levels) / 4})`;
      return make("span", {}, swatch, words);
    }));
    draw();
  }, error => settle("map", error));
  const askRow = newest(ask, found => {
    if (isEnded) return;
    settle("row");
    query.value = found.query;
    query.max = layer().queries - 1;
    called.textContent = ` of ${layer().queries.toLocaleString("en")}${names ? `, ${nameOf(0, found.query)},` : ""} attends to`;
    const most = Math.max(...found.weights.map(each => Math.abs(each ?? 0)), 1e-300);
    list.replaceChildren(...found.keys.map((key, at) => {
      const bar = make("i", { "aria-hidden": "true" });
      bar.style.width = `${(100 * Math.abs(found.weights[at] ?? 0)) / most}%`;
      return make("li", {}, make("span", { class: "name" }, names ? cut(names[1][key], 18) : `key ${key}`), make("span", { class: "weight" }, found.told[at]), make("span", { class: "bar" }, bar));
    }));
    spread.textContent = found.caption;
    heard.textContent = `${nameOf(0, found.query)} attends to ${found.keys.slice(0, 3).map((key, at) => `${nameOf(1, key)} ${found.told[at]}`).join(", ")}`;
  }, error => settle("row", error));

  // What is looked at -------------------------------------------------------------------------------------------------
  const windowOf = ({ rows, columns }) => ({ top: rows[0], left: columns[0], height: rows[1] - rows[0], width: columns[1] - columns[0] });
  const isExact = part => part.size[0] === part.rows[1] - part.rows[0] && part.size[1] === part.columns[1] - part.columns[0];
  const all = () => {
    const [rows, columns] = sizes();
    seen = { top: 0, left: 0, height: rows, width: columns };
    moved();
  };
  function bound() {
    const [rows, columns] = sizes(), most = widest ?? [rows, columns];
    seen.height = clamped(seen.height, Math.min(NEAREST, rows), Math.min(rows, most[0]));
    seen.width = clamped(seen.width, Math.min(NEAREST, columns), Math.min(columns, most[1]));
    seen.top = clamped(seen.top, 0, rows - seen.height);
    seen.left = clamped(seen.left, 0, columns - seen.width);
  }
  function zoom(factor, x = (cursor + 0.5 - seen.left) / seen.width, y = (chosen.query + 0.5 - seen.top) / seen.height) {
    const before = { ...seen };
    seen = { ...seen, height: before.height * factor, width: before.width * factor };
    bound();
    seen.top = before.top + clamped(y, 0, 1) * (before.height - seen.height);
    seen.left = before.left + clamped(x, 0, 1) * (before.width - seen.width);
    moved();
  }
  // The chosen query and the cursor's key, where they are out of sight.
  function bring() {
    const before = String(Object.values(seen));
    if (chosen.query < seen.top || chosen.query + 1 > seen.top + seen.height) seen.top = chosen.query + 0.5 - seen.height / 2;
    if (cursor < seen.left || cursor + 1 > seen.left + seen.width) seen.left = cursor + 0.5 - seen.width / 2;
    bound();
    if (before !== String(Object.values(seen))) moved();
  }
  function moved() {
    bound();
    draw();
    clearTimeout(waiting);
    const part = parts[0];
    if (!part?.isWhole || !isExact(part)) waiting = setTimeout(more, REST);
    else parts = [part];
  }
  function more() {
    const span = (start, length, size) => [Math.floor(start), Math.min(Math.ceil(start + length - 1e-9), size)];
    const [rows, columns] = sizes(), [down, across] = [span(seen.top, seen.height, rows), span(seen.left, seen.width, columns)];
    const cells = pixels => clamped(Math.round(pixels * (devicePixelRatio || 1)), 1, MOST);
    const isWhole = String([down, across]) === String([[0, rows], [0, columns]]);
    askMap({ asks: "map", rows: down, columns: across, size: [cells(box.height), cells(box.width)], isWhole });
  }
  function show() {
    widest = null;
    const [rows, columns] = sizes(), head = layer().axes.at(-1)?.size > 1 ? `head ${chosen.entry.at(-1)}` : "";
    cursor = Math.min(cursor, columns - 1);
    seen ??= { top: 0, left: 0, height: rows, width: columns };
    zooms.hidden = Math.max(rows, columns) <= 2 * NEAREST;
    canvas.setAttribute("aria-label", `Map of the weights of ${rows.toLocaleString("en")} queries on ${columns.toLocaleString("en")} keys${[layer().name, head].filter(Boolean).map(each => `, ${each}`).join("")}. Arrows move among queries and keys, plus and minus zoom, 0 shows all.`);
    lay();
    draw();
    more();
    askRow({ asks: "row" });
  }

  // How it is drawn ---------------------------------------------------------------------------------------------------
  let style = getComputedStyle(root);
  const colour = name => style.getPropertyValue(name).trim();
  const levelOf = (weight, largest) => Math.round(clamped(weight / largest, 0, 1) ** power * levels);
  const font = size => `${size}px system-ui, sans-serif`;
  const widthOf = words => {
    const context = canvas.getContext("2d");
    context.font = font(11);
    return context.measureText(words).width;
  };
  function paint(part) {
    const [height, width] = part.size, context = part.canvas.getContext("2d");
    Object.assign(part.canvas, { width, height });
    const image = context.createImageData(width, height);
    const bytes = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
    const scale = Array.from({ length: levels + 1 }, (_, level) => bytes(colour(`--w${level}`))), none = bytes(colour("--none"));
    part.weights.forEach((weight, at) => image.data.set([...(Number.isFinite(weight) ? scale[levelOf(weight, part.largest)] : none), 255], 4 * at));
    context.putImageData(image, 0, 0);
  }
  const longest = side => (names ? Math.max(...names[side].slice(0, 2000).map(each => widthOf(cut(each, 13))), 8) : widthOf(String(sizes()[side])));
  // The map takes the room there is; its longer side is the weights' own, and slivers are widened.
  function lay() {
    const [rows, columns] = sizes(), left = longest(0) + 10, top = names ? longest(1) * 0.87 + 14 : 20, right = names ? 30 : 8;
    const room = Math.max((stage.clientWidth || 480) - left - right, 120), size = Math.min(CELL, room / columns, TALLEST / rows);
    box = { left, top, right, width: Math.max(columns * size, Math.min(room, 160)), height: Math.max(rows * size, 60) };
    canvas.style.width = `${left + box.width + right}px`;
    canvas.style.height = `${top + box.height + 2}px`;
  }
  const x = column => box.left + ((column - seen.left) / seen.width) * box.width;
  const y = place => box.top + ((place - seen.top) / seen.height) * box.height;

  function draw() {
    if (isEnded || !seen) return;
    style = getComputedStyle(root);
    const ratio = devicePixelRatio || 1, context = canvas.getContext("2d"), mark = colour("--mark"), ink = colour("--ink");
    canvas.width = Math.round((box.left + box.width + box.right) * ratio);
    canvas.height = Math.round((box.top + box.height + 2) * ratio);
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = false;
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
    for (const { canvas: drawn, rows, columns } of parts)
      context.drawImage(drawn, x(columns[0]), y(rows[0]), x(columns[1]) - x(columns[0]), y(rows[1]) - y(rows[0]));
    const isNumbered = parts.length > 0 && number(context, parts.at(-1));
    caption.textContent = `${parts.at(-1)?.caption ?? ""}${isNumbered ? " Numbers are percents." : ""}`;
    const tall = Math.max(y(chosen.query + 1) - y(chosen.query), 2), wide = Math.max(x(cursor + 1) - x(cursor), 2);
    Object.assign(context, { strokeStyle: mark, lineWidth: tall < 4 ? 1 : 2 });
    context.strokeRect(box.left + 1, y(chosen.query), box.width - 2, tall);
    if (document.activeElement === canvas) context.strokeRect(x(cursor) + 1, y(chosen.query) + 1, Math.max(wide - 2, 1), Math.max(tall - 2, 1));
    context.restore();
    Object.assign(context, { strokeStyle: colour("--faint"), lineWidth: 1, font: font(11), textAlign: "right" });
    context.strokeRect(box.left + 0.5, box.top + 0.5, box.width - 1, box.height - 1);
    for (const { place, at } of labels(0, seen.top, seen.height, box.height, names || box.height / seen.height >= ROW ? ROW : NUMBER)) {
      context.fillStyle = place === chosen.query ? mark : ink;
      context.fillText(names ? cut(names[0][place], 13) : place, box.left - 6, box.top + at + 4);
    }
    Object.assign(context, { fillStyle: ink, textAlign: names ? "left" : "center" });
    for (const { place, at } of labels(1, seen.left, seen.width, box.width, names ? COLUMN : widthOf(String(sizes()[1])) + 10)) {
      context.save();
      context.translate(box.left + at + (names ? 3 : 0), box.top - 6);
      if (names) context.rotate(-Math.PI / 3);
      context.fillText(names ? cut(names[1][place], 13) : place, 0, 0);
      context.restore();
    }
  }
  // Percents in cells that have room for them.
  function number(context, part) {
    const [height, width] = part.size, tall = (y(part.rows[1]) - y(part.rows[0])) / height, wide = (x(part.columns[1]) - x(part.columns[0])) / width;
    if (!layer().shares || tall < 15 || wide < 21) return false;
    Object.assign(context, { font: font(11), textAlign: "center" });
    part.weights.forEach((weight, at) => {
      if (weight === 0) return;
      context.fillStyle = Number.isFinite(weight) ? colour(`--i${levelOf(weight, part.largest)}`) : "#000";
      const words = !Number.isFinite(weight) ? "?" : Math.abs(weight) < 0.005 ? "·" : String(Math.round(100 * weight)).replace("-", "−");
      context.fillText(words, x(part.columns[0]) + ((at % width) + 0.5) * wide, y(part.rows[0]) + (Math.floor(at / width) + 0.5) * tall + 4);
    });
    return true;
  }
  // As many places as there is room for, each at the middle of its cell.
  function labels(side, start, length, room, apart) {
    const rough = Math.max((apart * length) / room, 1), tens = 10 ** Math.floor(Math.log10(rough)), found = [];
    const step = names ? Math.ceil(rough) : [1, 2, 5, 10].map(each => each * tens).find(each => each >= rough);
    for (let place = Math.ceil((start - 0.5) / step) * step; place < Math.min(start + length, sizes()[side]); place += step) {
      const at = ((place + 0.5 - start) / length) * room;
      if (place >= 0 && at >= 0 && at <= room) found.push({ place, at });
    }
    return found;
  }

  // Hands -------------------------------------------------------------------------------------------------------------
  const at = event => {
    const { left, top } = canvas.getBoundingClientRect();
    const across = (event.clientX - left - box.left) / box.width, down = (event.clientY - top - box.top) / box.height;
    return { across, down, row: Math.floor(seen.top + down * seen.height), column: Math.floor(seen.left + across * seen.width), isInside: across >= 0 && across < 1 && down >= 0 && down < 1 };
  };
  function tell(place, column) {
    const part = parts.at(-1);
    pointed.textContent = "";
    if (!part || place < part.rows[0] || place >= part.rows[1] || column < part.columns[0] || column >= part.columns[1]) return;
    const span = (value, [from, to], count, side) => {
      const size = (to - from) / count, cell = Math.floor((value - from) / size + 1e-9), start = at => Math.ceil(from + at * size - 1e-9);
      const first = start(cell), last = Math.min(start(cell + 1), sizes()[side]) - 1; // the last cell may reach beyond what there is
      return [cell, last > first ? `${nameOf(side, first)} to ${names ? nameOf(side, last) : last}` : nameOf(side, first)];
    };
    const [down, rows] = span(place, part.rows, part.size[0], 0), [across, columns] = span(column, part.columns, part.size[1], 1);
    pointed.textContent = `${rows} → ${columns}: ${told(part.weights[down * part.size[1] + across])}`;
  }
  let drag = null;
  canvas.addEventListener("pointerdown", event => {
    drag = { x: event.clientX, y: event.clientY, isMoved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", event => {
    const { isInside, row: place, column } = at(event);
    if (!drag) return isInside ? tell(place, column) : tell(-1);
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    if (!drag.isMoved && Math.hypot(dx, dy) < 4) return;
    seen.left -= (dx / box.width) * seen.width;
    seen.top -= (dy / box.height) * seen.height;
    drag = { x: event.clientX, y: event.clientY, isMoved: true };
    moved();
  });
  canvas.addEventListener("pointerup", event => {
    const { down, row: place, column, isInside } = at(event);
    if (drag && !drag.isMoved && down >= 0 && down < 1) {
      if (isInside) cursor = column;
      choose({ query: place });
      tell(place, column);
    }
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => tell(-1));
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return; // a notebook scrolls
    event.preventDefault();
    const { across, down } = at(event);
    zoom(Math.exp(clamped(event.deltaY, -120, 120) / 200), across, down);
  }, { passive: false });
  canvas.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const part = parts.at(-1), [rows, columns] = sizes();
    const cell = (side, count) => (part ? Math.max(Math.round((part[side][1] - part[side][0]) / count), 1) : 1);
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) {
      cursor = clamped(cursor + step[1] * cell("columns", part?.size[1]), 0, columns - 1);
      choose({ query: clamped(chosen.query + step[0] * cell("rows", part?.size[0]), 0, rows - 1) });
      bring();
      draw();
      tell(chosen.query, cursor);
    } else if (event.key === "+" || event.key === "=") zoom(0.5);
    else if (event.key === "-" || event.key === "−") zoom(2);
    else if (event.key === "0") all();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  canvas.addEventListener("focus", draw);
  canvas.addEventListener("blur", draw);

  // What changes around it --------------------------------------------------------------------------------------------
  const retint = () => {
    style = getComputedStyle(root);
    parts.forEach(paint);
    draw();
  };
  const sized = new ResizeObserver(() => {
    if (!seen || !stage.clientWidth) return;
    const before = box?.width;
    lay();
    retint(); // what was painted apart from the page had no colours
    if (parts.length && before !== box.width) moved();
  });
  const themed = new MutationObserver(retint), scheme = matchMedia("(prefers-color-scheme: dark)");
  sized.observe(stage);
  for (const each of [document.documentElement, document.body]) themed.observe(each, { attributes: true, attributeFilter: ["class", "theme", "data-jp-theme-light"] });
  scheme.addEventListener("change", retint);
  const other = () => follow();
  model.on("change:chosen", other);
  fillPickers();
  show();
  return () => {
    isEnded = true;
    clearTimeout(waiting);
    clearTimeout(late);
    sized.disconnect();
    themed.disconnect();
    scheme.removeEventListener("change", retint);
    model.off("change:chosen", other);
    python.end();
  };
}

export default { render };
