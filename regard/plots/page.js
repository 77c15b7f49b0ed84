"use strict";
// Every text goes in by textContent, so that a word that looks like markup stays a word.
const data = JSON.parse(document.getElementById("data").textContent);
const LEVELS = {{count}}, POWER = {{power}}, COLOURS = {{colours}};  // the scale of figures, as the style has it
const WIDEST = 560;  // pixels of lines between words
const MOST_NAMED = 40;  // rows or columns up to which cells have numbers, and words lines between them
const main = document.querySelector("main");
const SVG = document.querySelector("svg").namespaceURI;
const dark = matchMedia("(prefers-color-scheme: dark)");

function make(name, options = {}, ...children) {
  return filled(document.createElement(name), options, children);
}

function shape(name, options = {}, ...children) {
  return filled(document.createElementNS(SVG, name), options, children);
}

function filled(element, options, children) {
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") element.textContent = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const place = (weight, largest) => Math.min(Math.max(weight / largest, 0), 1) ** POWER;
const level = (weight, largest) => Math.round(place(weight, largest) * LEVELS);
const threeDigits = weight => weight === null ? "not a number" : `${Number((100 * weight).toPrecision(3))}%`;
function listed(weight) {  // as lists in terminals have it: a weight that is not 0 does not look like 0
  if (weight === null) return "?";
  if (weight !== 0 && Math.abs(weight) < 5e-5) return weight > 0 ? "<0.01%" : ">-0.01%";
  return `${(100 * weight).toFixed(weight === 0 || Math.abs(weight) >= 5e-3 ? 1 : 2)}%`;
}

function draw(picture, number) {
  const section = make("section", { class: "picture" });
  if (picture.title) section.append(make("h2", { text: picture.title }));
  if (picture.note) section.append(make("p", { class: "note", text: picture.note }));
  if (picture.weights !== null) drawMaps(picture, number, section);
  if (picture.printed) section.append(make("pre", { text: picture.printed }));
  main.append(section);
}

// The picture's own map or that of one head, as a matrix or as lines, and the row of one word.
function drawMaps(picture, number, section) {
  const named = `map${number}`;
  const caption = make("p", { class: "quiet" }), value = make("p", { class: "value", role: "status", "aria-live": "polite" });
  const held = make("div", { class: "held" }), more = make("p", { class: "quiet", text: "There is more of it: scroll.", hidden: "" });
  const legend = make("div", { class: "legend" }), side = make("aside", { "aria-live": "polite" });
  const title = section.querySelector("h2"), own = picture.title || `Weights ${number + 1}`;
  const ways = picture.rows.length > MOST_NAMED || picture.columns.length > MOST_NAMED ? null : chooser(["Matrix", "Lines"], show => { way = show; redraw(); });
  let map = { ...picture, name: own }, way = "Matrix", chosen = picture.selected, drawn = null, width = 0;

  function tell(row, column) {
    // In their own direction, so that words from right to left do not turn the arrow.
    const [from, to] = [map.rows[row], map.columns[column]].map(text => make("bdi", { text }));
    value.replaceChildren(from, " → ", to, `: ${threeDigits(map.weights[row][column])}`);
  }
  function choose(row) {
    chosen = row;
    drawn.mark(row);
    side.replaceChildren(...ranked(map, row));
  }
  function redraw() {
    const few = map.rows.length <= MOST_NAMED && map.columns.length <= MOST_NAMED;
    caption.textContent = map.caption + (few && way === "Matrix" ? "; numbers are percents" : "");
    width = held.parentElement.clientWidth;
    drawn = way === "Lines" ? lines(map, chosen, tell, choose, Math.min(width, WIDEST)) : matrix(map, tell, choose);
    held.replaceChildren(drawn.root);
    legend.hidden = way === "Lines";  // whose weights are widths, of one colour
    legend.replaceChildren(make("span", { text: "weight, up to the largest" }), ramp(map.largest));
    value.replaceChildren();
    if (chosen !== null) choose(chosen);
    measure();
  }
  function measure() {
    const scroll = drawn.root;
    more.hidden = scroll.scrollWidth <= scroll.clientWidth && scroll.scrollHeight <= scroll.clientHeight;
  }

  section.append(caption, ...(ways ? [ways] : []), value);
  const right = make("div", { class: "right" }, side);
  section.append(make("div", { class: "sides" }, make("div", { id: named }, held, more, legend), right));
  if (picture.heads) {
    right.prepend(overview(picture, own, next => {
      const before = map.rows.length;
      map = next ?? { ...picture, name: own };
      if (chosen !== null) chosen = Math.floor((chosen + 0.5) * map.rows.length / before);  // the same place, if not the same cell
      if (title) title.textContent = map.name;
      redraw();
    }));
  }
  main.append(section);  // what is drawn can be measured
  redraw();
  addEventListener("resize", () => way === "Lines" && held.parentElement.clientWidth !== width ? redraw() : measure());
}

function chooser(names, onchoose) {
  const root = make("div", { class: "ways", role: "group", "aria-label": "Drawn as" });
  for (const name of names) {
    const button = make("button", { type: "button", "aria-pressed": String(name === names[0]), text: name });
    button.addEventListener("click", () => {
      for (const each of root.children) each.setAttribute("aria-pressed", String(each === button));
      onchoose(name);
    });
    root.append(button);
  }
  return root;
}

function matrix({ rows, columns, weights, largest, name }, tell, choose) {
  const many = Math.max(rows.length, columns.length) > MOST_NAMED;
  const square = rows.length === columns.length && rows.every((name, i) => name === columns[i]);
  const table = make("table", { class: many ? "map many" : "map", role: "grid", "aria-label": name });
  const grid = [];  // every header and cell, by line and place: what arrow keys walk through

  const heads = make("tr", { role: "row" }, make("td", { role: "gridcell" }));
  grid.push([null]);
  columns.forEach((name, column) => {
    const head = make("th", { role: "columnheader", scope: "col", tabindex: "-1" }, make("span", { text: name }));
    if (square) head.addEventListener("click", () => choose(column));
    grid[0].push(head);
    heads.append(head);
  });
  const body = make("tbody");
  weights.forEach((line, row) => {
    const head = make("th", { role: "rowheader", scope: "row", tabindex: "-1", text: rows[row] });
    head.addEventListener("click", () => choose(row));
    const tr = make("tr", { role: "row" }, head);
    grid.push([head]);
    line.forEach((weight, column) => {
      const cell = make("td", { role: "gridcell", tabindex: "-1", class: weight === null ? "bad" : `w${level(weight, largest)}` });
      cell.setAttribute("aria-label", `${rows[row]} to ${columns[column]}: ${threeDigits(weight)}`);
      if (!many) cell.textContent = weight === null ? "?" : Math.abs(weight) < 0.005 ? "·" : String(Math.round(100 * weight));
      cell.dataset.row = row;
      cell.dataset.column = column;
      tr.append(cell);
      grid[row + 1].push(cell);
    });
    body.append(tr);
  });
  table.append(make("thead", {}, heads), body);

  let here = [1, 0];
  function point(event) {
    const cell = event.target.closest("td[data-row]");
    if (!cell) return;
    tell(Number(cell.dataset.row), Number(cell.dataset.column));
    table.querySelectorAll(".here").forEach(each => each.classList.remove("here"));
    cell.classList.add("here");
  }
  table.addEventListener("mouseover", point);
  table.addEventListener("focusin", point);
  table.addEventListener("click", event => {
    const cell = event.target.closest("td[data-row]");
    if (cell) choose(Number(cell.dataset.row));
  });
  grid[1][0].tabIndex = 0;
  table.addEventListener("keydown", event => {
    let [line, place] = here;
    const at = event.target.closest("th, td");
    grid.forEach((cells, i) => { const j = cells.indexOf(at); if (at && j >= 0) [line, place] = [i, j]; });
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key in moves) { line += moves[event.key][0]; place += moves[event.key][1]; }
    else if (event.key === "Home") place = 0;
    else if (event.key === "End") place = columns.length;
    else if (event.key === "Enter" || event.key === " ") {
      if (line > 0) choose(line - 1);
      else if (square) choose(place - 1);
      event.preventDefault();
      return;
    } else return;
    event.preventDefault();
    line = Math.min(Math.max(line, 0), rows.length);
    place = Math.min(Math.max(place, 0), columns.length);
    const next = grid[line][place];
    if (!next) return;
    table.querySelectorAll("[tabindex='0']").forEach(each => { each.tabIndex = -1; });
    next.tabIndex = 0;
    next.focus();
    here = [line, place];
  });

  function mark(row) {
    table.querySelectorAll("th.on").forEach(each => { each.classList.remove("on"); each.removeAttribute("aria-selected"); });
    grid[row + 1][0].classList.add("on");
    grid[row + 1][0].setAttribute("aria-selected", "true");
  }
  return { root: make("div", { class: "scroll" }, table), mark };
}

// Who attends at the left, what is attended to at the right: the thicker a line, the more weight.
function lines({ rows, columns, weights, largest, name }, chosen, tell, choose, wide) {
  const step = 26, high = step * Math.max(rows.length, columns.length), most = wide < 420 ? 11 : 16;
  const cut = text => [...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text;
  const middle = (count, at) => (high - count * step) / 2 + (at + 0.5) * step;
  const [from, to] = [8.4 * most + 12, wide - 8.4 * most - 12];
  const root = shape("svg", { class: "lines", width: wide, height: high, role: "group", "aria-label": `${name}, as lines from queries to keys` });
  const threads = [], words = [];
  weights.forEach((line, row) => line.forEach((weight, column) => {
    const share = (weight ?? 0) / largest;
    if (!(share > 0.01)) return;
    const [start, end] = [middle(rows.length, row), middle(columns.length, column)];
    const thread = shape("path", {
      class: "thread", "stroke-width": Math.max(9 * share, 0.6), "data-row": row,
      d: `M${from} ${start}C${wide / 2} ${start} ${wide / 2} ${end} ${to} ${end}`,
    });
    thread.style.strokeOpacity = 0.08 + 0.5 * place(weight, largest);
    thread.addEventListener("mouseover", () => tell(row, column));
    threads.push(thread);
  }));
  rows.forEach((word, row) => {
    const button = shape("g", { class: "word", role: "button", tabindex: 0, "aria-pressed": "false", "aria-label": word },
      shape("rect", { x: 1, y: middle(rows.length, row) - step / 2 + 1, width: from - 4, height: step - 2, rx: 4 }),
      shape("text", { x: from - 10, y: middle(rows.length, row) + 4, "text-anchor": "end", text: cut(word) }));
    button.addEventListener("click", () => choose(row));
    button.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(row);
    });
    words.push(button);
  });
  const keys = columns.map((word, column) => shape("text", { x: to + 10, y: middle(columns.length, column) + 4, text: cut(word) }));
  root.append(...threads, ...words, ...keys);

  function mark(row) {
    words.forEach((each, at) => { each.classList.toggle("on", at === row); each.setAttribute("aria-pressed", String(at === row)); });
    threads.forEach(each => each.classList.toggle("on", Number(each.dataset.row) === row));
    root.classList.toggle("one", row !== null);
  }
  if (chosen !== null) mark(chosen);
  return { root: make("div", { class: "scroll" }, root), mark };
}

// Every head of every layer, small. `onchoose` is told the map of the one that is chosen, or nothing: the picture's own.
function overview({ heads, rows, columns }, own, onchoose) {
  const bytes = Uint8Array.from(atob(heads.weights), sign => sign.charCodeAt(0)), all = new Float32Array(bytes.buffer);
  const [height, width] = heads.size, most = Math.max(...heads.counts);
  const finite = weight => Number.isFinite(weight) ? weight : null;
  const grid = make("div", { class: "heads", role: "radiogroup", "aria-label": "Heads" });
  grid.style.gridTemplateColumns = `auto repeat(${most}, minmax(1.1rem, 2.6rem))`;
  const maps = [], back = make("button", { type: "button", "aria-pressed": "true", text: own });
  let from = 0;

  grid.append(make("span"), ...Array.from({ length: most }, (_, head) => make("span", { class: "quiet", "aria-hidden": "true", text: head })));
  heads.layers.forEach((layer, line) => {
    grid.append(make("span", { class: "quiet", "aria-hidden": "true", text: layer }));
    for (let head = 0; head < heads.counts[line]; head += 1) {
      const weights = all.subarray(from, from + height * width), name = `Layer ${layer}, head ${head}`;
      const canvas = make("canvas", { "aria-hidden": "true", width, height });
      const button = make("button", { type: "button", role: "radio", class: "head", "aria-checked": "false", "aria-label": name, title: name, tabindex: "-1" }, canvas);
      const map = { weights, name, line, head, canvas, button };
      button.style.gridColumn = head + 2;
      button.addEventListener("click", () => choose(map));
      maps.push(map);
      grid.append(button);
      from += height * width;
    }
  });
  maps[0].button.tabIndex = 0;
  const heaviest = weights => weights.reduce((one, other) => Number.isFinite(other) ? Math.max(one, other) : one, 0) || 1;
  const largest = maps.reduce((one, { weights }) => Math.max(one, heaviest(weights)), 0);

  function choose(map) {
    back.setAttribute("aria-pressed", String(map === null));
    for (const each of maps) {
      each.button.setAttribute("aria-checked", String(each === map));
      each.button.tabIndex = each === (map ?? maps[0]) ? 0 : -1;
    }
    if (map === null) return onchoose();
    const lines = Array.from({ length: height }, (_, row) => Array.from(map.weights.subarray(row * width, (row + 1) * width), finite));
    onchoose({
      rows: heads.rows ?? rows, columns: heads.columns ?? columns, caption: heads.caption, name: map.name,
      weights: lines, largest: heaviest(map.weights),
    });
  }
  back.addEventListener("click", () => choose(null));
  grid.addEventListener("keydown", event => {
    const at = maps.findIndex(each => each.button === document.activeElement);
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (at < 0 || !(event.key in moves)) return;
    event.preventDefault();
    const [down, along] = moves[event.key], { line, head } = maps[at];
    const next = maps.find(each => each.line === line + down && each.head === head + along);
    if (!next) return;
    choose(next);
    next.button.focus();
  });
  function paint() {
    const colours = COLOURS[dark.matches ? "dark" : "light"].map(each => [1, 3, 5].map(at => parseInt(each.slice(at, at + 2), 16)));
    for (const { canvas, weights } of maps) {
      const context = canvas.getContext("2d"), image = context.createImageData(width, height);
      weights.forEach((weight, at) => image.data.set([...(Number.isFinite(weight) ? colours[level(weight, largest)] : [154, 154, 154]), 255], 4 * at));
      context.putImageData(image, 0, 0);
    }
  }
  dark.addEventListener("change", paint);
  paint();
  return make("div", { class: "overview" }, make("h3", { text: "All heads" }), grid,
    make("p", { class: "quiet", text: "Layers from top to bottom, heads from left to right: choose one to see it large." }), make("div", { class: "ways" }, back));
}

function ranked({ rows, columns, weights }, row) {
  const order = columns.map((_, i) => i).sort((a, b) => (weights[row][b] ?? -Infinity) - (weights[row][a] ?? -Infinity) || a - b).slice(0, 30);
  const longest = Math.max(0, ...weights[row]) || 1;
  const list = make("table", { class: "ranked" });
  for (const column of order) {
    const weight = weights[row][column];
    const bar = make("div", { class: "bar" });
    bar.style.width = `${10 * Math.max(weight ?? 0, 0) / longest}rem`;
    list.append(make("tr", {}, make("td", { text: columns[column] }), make("td", { text: listed(weight) }), make("td", {}, bar)));
  }
  const rest = columns.length - order.length;
  return [make("h2", { text: `What “${rows[row]}” attends to` }), list, ...(rest > 0 ? [make("p", { class: "quiet", text: `and ${rest} lighter ones` })] : [])];
}

function ramp(largest) {
  const root = make("span", { class: "ramp" });
  for (const place of [0, 0.25, 0.5, 0.75, 1]) {
    const tick = make("span", { class: "tick", text: threeDigits(place ** (1 / POWER) * largest) });
    tick.style.left = `${100 * place}%`;
    root.append(tick);
  }
  return root;
}

document.querySelector("h1").textContent = data.title;
data.pictures.forEach(draw);
