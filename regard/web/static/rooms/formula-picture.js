// What the room hands out: the drawing with its numbers as one picture, the weights as rows, and all of it as data.
import { shape, text } from "../elements.js";
import { fixed, KINDS, told } from "./formula-words.js";

const MARGIN = 20, GAP = 24, LINE = 22;
const WIDE = 9.6, NARROW = 7; // pixels of a letter of the sum, and of the formulas, about

// A drawing that stands in another: parts that are measured stay where they are.
function placed(svg, x, y, width, height) {
  const copy = svg.cloneNode(true);
  for (const name of ["role", "tabindex", "aria-roledescription"]) copy.removeAttribute(name);
  for (const [name, value] of Object.entries({ x, y, width, height })) copy.setAttribute(name, value);
  return copy;
}

const heightOf = svg => {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  return { width, height };
};

// Words as lines of at most so many pixels.
function broken(words, width, letter) {
  const lines = [];
  for (const word of words.split(" ")) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && longer.length * letter <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

// What stands above a plane: the sum, or why there is none, and the formulas.
function heading({ plane, sum, refusal, score, rule }) {
  return [
    ...broken(refusal || sum.root.textContent, plane.size, WIDE).map(words => [words, "ink strong heading"]),
    ...[score, rule].flatMap(each => broken(each.textContent, plane.size, NARROW)).map(words => [words, "quiet"]),
  ];
}

function columnDrawn(column, x, top) {
  const { plane } = column, { size, box, canvas } = plane;
  const parts = heading(column).map(([words, kind], place) => text(x, 24 + LINE * place, words, kind));
  if (!canvas.hidden && canvas.width) parts.push(shape("image", { ...box, x: x + box.x, y: top + box.y, href: canvas.toDataURL(), preserveAspectRatio: "none" }));
  parts.push(placed(plane.svg, x, top, size, size));
  let below = top + size + GAP;
  for (const figure of [column.list, column.range.root]) {
    const svg = figure.querySelector("svg");
    if (figure.hidden || !svg) continue;
    const { width, height } = heightOf(svg);
    parts.push(placed(svg, x, below, width, height));
    below += height + GAP;
  }
  parts.push(text(x, below, column.numbers.words, "quiet"));
  return { parts, height: below + MARGIN, width: size };
}

export function picture(room) {
  let x = MARGIN, height = 0;
  const parts = [];
  const columns = room.shownColumns(), top = 24 + LINE * Math.max(...columns.map(each => heading(each).length));
  for (const column of columns) {
    const drawn = columnDrawn(column, x, top);
    parts.push(...drawn.parts);
    x += drawn.width + GAP;
    height = Math.max(height, drawn.height);
  }
  const whole = shape("svg", { viewBox: `0 0 ${x - GAP + MARGIN} ${height}`, class: "unseen" }, ...parts);
  // Styles are read of what is in the page: it stays there until they were.
  document.body.append(whole);
  setTimeout(() => whole.remove());
  return whole;
}

export function rows(room) {
  const { points, space } = room, columns = room.shownColumns();
  const [coordinates, values] = [points.coordinatesOf(0, space), points.valueOf(0, space)];
  const many = columns.length > 1;
  const head = ["key", ...coordinates.map((_, axis) => `k${axis + 1}`), ...values.map((_, axis) => `v${axis + 1}`), "on", ...columns.map((_, place) => (many ? `weight ${place + 1}` : "weight"))];
  return [head, ...points.keys.map((each, index) => [
    points.titleOf(index), ...points.coordinatesOf(index, space), ...points.valueOf(index, space), each.on, ...columns.map(({ result }) => result?.weights[index] ?? null),
  ])];
}

export function data(room) {
  return room.shownColumns().map(column => ({
    names: room.points.keys.map((_, index) => room.points.titleOf(index)), ...room.question(room.settingsOf(column)), weights: column.result?.weights ?? null, output: column.result?.output ?? null, kind: column.kind,
    said: column.refusal || `${KINDS[column.kind]} ${column.result ? `${column.result.weights.map(fixed).join(" ")} → ${told(column.result.output)}` : ""}`,
  }));
}
