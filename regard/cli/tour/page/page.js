
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const { levels: LEVELS, power: POWER } = data.scale_of_colours;
const WIDE = 400;

// What the page computes itself: dot products and Gaussians under softmax.
const dot = (left, right, count = left.length) => {
  let sum = 0;
  for (let place = 0; place < count; place += 1) sum += left[place] * right[place];
  return sum;
};
const gaussian = (query, key, bandwidth) => -((query - key) ** 2) / (2 * bandwidth ** 2);
function softmax(scores, temperature = 1) {
  const peak = Math.max(...scores);
  const powers = scores.map(score => Math.exp((score - peak) / temperature));
  const total = powers.reduce((sum, each) => sum + each, 0);
  return powers.map(each => each / total);
}
const average = (weights, values) => weights.reduce((sum, weight, place) => sum + weight * values[place], 0);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const threeDigits = weight => `${Number((100 * weight).toPrecision(3))}%`;
function listed(weight) {
  if (weight !== 0 && weight < 5e-5) return "<0.01%";
  return `${(100 * weight).toFixed(weight === 0 || weight >= 5e-3 ? 1 : 2)}%`;
}
const inCell = weight => weight < 0.005 ? "·" : String(Math.round(100 * weight));
const signed = number => String(number).replace("-", "−");

function element(name, attributes = {}, text = "", ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}
const write = (x, y, text, kind = "ink", anchor = "start") => element("text", { x, y, class: kind, "text-anchor": anchor }, text);
function drawing(figure, height) {
  const svg = element("svg", { viewBox: `0 0 ${WIDE} ${height}`, role: "img" });
  figure.querySelector("[data-drawing]").replaceChildren(svg);
  return svg;
}
const figureOf = name => document.querySelector(`[data-live="${name}"]`);

// A bar for each weight; its exact weight is an attribute, which tests read.
function bars(svg, names, weights, { y = 16, room = 92, largest = Math.max(...weights), right = [], step = 23, x = 0, wide = WIDE, group = "" } = {}) {
  const length = wide - room - 50 - (right.length ? 58 : 0);
  weights.forEach((weight, place) => {
    const at = y + place * step, width = length * weight / (largest || 1);
    svg.append(
      write(x + room - 8, at, names[place], "ink", "end"),
      element("rect", { x: x + room, y: at - 11, width: Math.max(width, 0.75), height: 14, rx: 2, class: "bar", "data-weight": weight, "data-group": group }),
      write(x + room + width + 6, at, listed(weight), "ink number"),
    );
    if (right.length) svg.append(write(x + wide, at, right[place], "quiet number", "end"));
  });
  return y + weights.length * step;
}

// Whoever hears the page hears the answer, not every step on the way: labels follow at once, `said` when it is still.
const waiting = new Map();
function describe(svg, text) {
  clearTimeout(waiting.get(svg.parentNode));
  waiting.set(svg.parentNode, setTimeout(() => svg.setAttribute("aria-label", text), 250));
  if (!svg.hasAttribute("aria-label")) svg.setAttribute("aria-label", text);
}

function live(name, draw) {
  const figure = figureOf(name), own = data[name];
  if (!figure || !own) return;
  const controls = Object.fromEntries([...figure.querySelectorAll("input, select")].map(each => [each.name, each]));
  const outputs = Object.fromEntries([...figure.querySelectorAll("output")].map(each => [each.dataset.of, each]));
  let asked = false;
  const redraw = () => { asked = false; draw(figure, own, controls, outputs); };
  figure.addEventListener("input", () => { if (!asked) { asked = true; requestAnimationFrame(redraw); } });
  return { controls, redraw };
}

function options(select, names, chosen) {
  select.replaceChildren(...names.map(([value, text]) => {
    const option = new Option(text, value);
    option.defaultSelected = option.selected = value === chosen;
    return option;
  }));
}

const salary = live("salary", (figure, { keys, values }, controls, outputs) => {
  const query = Number(controls.query.value), bandwidth = 10 ** Number(controls.bandwidth.value);
  const weigh = at => softmax(keys.map(key => gaussian(at, key, bandwidth)));
  const weights = weigh(query), answer = average(weights, values);
  const spread = Math.sqrt(average(weights, values.map(value => (value - answer) ** 2)));
  const left = 44, right = 392, top = 10, bottom = 196, [low, high] = [2.4, 4.2], [least, most] = [50000, 88000];
  const across = gpa => left + (right - left) * (gpa - low) / (high - low);
  const up = value => bottom - (bottom - top) * (value - least) / (most - least);
  const svg = drawing(figure, 456);
  for (const value of [50000, 60000, 70000, 80000]) {
    svg.append(element("line", { x1: left, x2: right, y1: up(value), y2: up(value), class: "faint" }), write(left - 6, up(value) + 4, `${value / 1000}k`, "quiet small", "end"));
  }
  for (const gpa of [2.6, 3, 3.4, 3.8, 4.2]) svg.append(write(across(gpa), bottom + 16, gpa.toFixed(1), "quiet small", "middle"));
  const curve = [];
  for (let step = 0; step <= 120; step += 1) {
    const gpa = low + (high - low) * step / 120;
    curve.push(`${across(gpa).toFixed(1)},${up(average(weigh(gpa), values)).toFixed(1)}`);
  }
  svg.append(element("polyline", { points: curve.join(" "), class: "curve" }));
  svg.append(element("line", { x1: across(query), x2: across(query), y1: top, y2: bottom, class: "mark" }));
  keys.forEach((key, place) => svg.append(element("circle", { cx: across(key), cy: up(values[place]), r: 3 + 9 * Math.sqrt(weights[place]), class: "value-dot", opacity: 0.35 + 0.65 * Math.sqrt(weights[place]) })));
  svg.append(element("circle", { cx: across(query), cy: up(answer), r: 5, class: "mark-dot" }));
  svg.append(write(40, 234, "GPA", "quiet small", "end"), write(48, 234, "weight", "quiet small"), write(WIDE, 234, "salary", "quiet small", "end"));
  bars(svg, keys.map(key => key.toFixed(1)), weights, { y: 254, room: 48, right: values.map(value => whole.format(value)) });
  outputs.query.textContent = query.toFixed(2);
  outputs.bandwidth.textContent = bandwidth.toFixed(3);
  controls.bandwidth.setAttribute("aria-valuetext", bandwidth.toFixed(3));
  const told = `GPA ${query.toFixed(2)} → ${whole.format(answer)} ± ${whole.format(spread)}`;
  outputs.answer.textContent = told;
  outputs.answer.dataset.value = answer;
  describe(svg, `Nine salaries over their GPAs, and the weighted average. ${told}`);
});
if (salary) {
  salary.controls.query.defaultValue = data.salary.query;
  salary.controls.bandwidth.defaultValue = Math.log10(data.salary.bandwidth);
  salary.redraw();
}

const temperature = live("softmax", (figure, { scores, names }, controls, outputs) => {
  const at = 10 ** Number(controls.temperature.value), weights = softmax(scores, at);
  const svg = drawing(figure, 100);
  bars(svg, names, weights, { largest: 1 });
  outputs.temperature.textContent = at.toPrecision(2);
  controls.temperature.setAttribute("aria-valuetext", at.toPrecision(2));
  describe(svg, `The weights at temperature ${at.toPrecision(2)}: ${weights.map(threeDigits).join(", ")}`);
});
if (temperature) temperature.redraw();

const scale = live("scale", (figure, { query, keys }, controls, outputs) => {
  const dim = 2 ** Number(controls.dim.value);
  const scores = keys.map(key => dot(query, key, dim));
  const names = keys.map((_, place) => `k${"₁₂₃₄₅₆₇₈"[place]}`);
  const svg = drawing(figure, 222);
  svg.append(write(30, 14, "softmax(qᵀk)", "ink strong"), write(238, 14, "softmax(qᵀk / √d)", "ink strong"));
  const plain = softmax(scores), scaled = softmax(scores.map(score => score / Math.sqrt(dim)));
  bars(svg, names, plain, { y: 40, room: 30, largest: 1, wide: 192, group: "plain" });
  bars(svg, names, scaled, { y: 40, room: 30, largest: 1, x: 208, wide: 192, group: "scaled" });
  outputs.dim.textContent = dim;
  controls.dim.setAttribute("aria-valuetext", `d = ${dim}`);
  describe(svg, `d = ${dim}. The largest weight is ${threeDigits(Math.max(...plain))} without the scale and ${threeDigits(Math.max(...scaled))} with it.`);
});
if (scale) scale.redraw();

// A matrix that the page drew when it was made takes other weights, and another row.
function paint(svg, weights, words, chosen) {
  const largest = Math.max(...weights.flat()) || 1;
  for (const cell of svg.querySelectorAll("[data-cell]")) {
    const [row, column] = cell.dataset.cell.split(",").map(Number), weight = weights[row][column];
    const level = `w${Math.round(Math.min(Math.max(weight / largest, 0), 1) ** POWER * LEVELS)}`;
    cell.setAttribute("class", level);
    cell.dataset.weight = weight;
    cell.firstElementChild.textContent = `${words[row]} → ${words[column]}: ${threeDigits(weight)}`;
    cell.nextElementSibling.setAttribute("class", `${level} cell`);
    cell.nextElementSibling.textContent = inCell(weight);
  }
  for (const tick of svg.querySelectorAll("[data-tick]")) tick.textContent = threeDigits(Number(tick.dataset.tick) ** (1 / POWER) * largest);
  mark(svg, chosen);
}
function mark(svg, chosen) {
  const first = svg.querySelector(`[data-cell="${chosen},0"]`);
  svg.querySelector(".chosen").setAttribute("y", Number(first.getAttribute("y")) - 1.5);
  for (const name of svg.querySelectorAll("[data-row]")) name.setAttribute("class", name.dataset.row === String(chosen) ? "ink strong" : "ink");
}
function ranked(figure, words, row, chosen, most = 6) {
  const order = row.map((_, place) => place).sort((a, b) => row[b] - row[a] || a - b).slice(0, most);
  const svg = drawing(figure, 22 + most * 23);
  svg.append(write(0, 14, `the row of “${words[chosen]}”, heaviest first`, "quiet"));
  bars(svg, order.map(place => words[place]), order.map(place => row[place]), { y: 38, room: 62 });
  describe(svg, `${words[chosen]} attends to ${order.map(place => `${words[place]} ${listed(row[place])}`).join(", ")}`);
}
function clickable(svg, select) {
  svg.addEventListener("click", event => {
    const cell = event.target.closest("[data-cell]");
    if (!cell) return;
    select.value = cell.dataset.cell.split(",")[0];
    select.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

const sentence = live("sentence", (figure, { words, matrix }, controls) => {
  const chosen = Number(controls.word.value);
  mark(document.getElementById("sentence-map"), chosen);
  ranked(figure, words, matrix[chosen], chosen);
});
if (sentence) {
  const { words, query } = data.sentence;
  options(sentence.controls.word, words.map((word, place) => [String(place), word]), String(query));
  clickable(document.getElementById("sentence-map"), sentence.controls.word);
  sentence.redraw();
}

const model = live("model", (figure, { words, mean, heads }, controls, outputs) => {
  const layer = controls.layer.value, head = controls.head.value, chosen = Number(controls.word.value);
  controls.head.disabled = layer === "mean";
  const weights = layer === "mean" ? mean : heads[layer][head];
  const svg = document.getElementById("model-map");
  paint(svg, weights, words, chosen);
  svg.setAttribute("aria-label", layer === "mean" ? "The average of all heads" : `Layer ${layer}, head ${head}: rows are queries, columns are keys`);
  outputs.which.textContent = layer === "mean" ? "Average of all layers and heads" : `Layer ${layer}, head ${head}`;
  ranked(figure, words, weights[chosen], chosen);
});
if (model) {
  const { words, heads, query, layer, head } = data.model;
  options(model.controls.layer, [["mean", "average of all"], ...heads.map((_, place) => [String(place), `layer ${place}`])], String(layer));
  options(model.controls.head, heads[0].map((_, place) => [String(place), `head ${place}`]), String(head));
  options(model.controls.word, words.map((word, place) => [String(place), word]), String(query));
  clickable(document.getElementById("model-map"), model.controls.word);
  model.redraw();
}

// The contents follow the reader: the chapter whose start was passed last.
const links = new Map([...document.querySelectorAll("nav a")].map(link => [link.hash.slice(1), link]));
const chapters = [...document.querySelectorAll("main > section")];
let current = null;
function follow() {
  const line = innerHeight * 0.3;
  let passed = null;
  for (const chapter of chapters) if (chapter.getBoundingClientRect().top <= line) passed = chapter;
  if (innerHeight + scrollY >= document.documentElement.scrollHeight - 2) passed = chapters[chapters.length - 1];
  if (passed === current) return;
  if (current) links.get(current.id).removeAttribute("aria-current");
  current = passed;
  if (!current) return;
  const link = links.get(current.id), nav = link.closest("nav");
  link.setAttribute("aria-current", "location");
  if (nav.scrollHeight > nav.clientHeight) nav.scrollTop = link.offsetTop - nav.clientHeight / 2;
}
addEventListener("scroll", follow, { passive: true });
addEventListener("resize", follow, { passive: true });
follow();
