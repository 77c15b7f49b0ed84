// Elements of HTML and SVG. Texts go in as text, never as markup.

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter(each => each !== null && each !== undefined && each !== false));
  return node;
}

export const element = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);

const SVG = "http://www.w3.org/2000/svg";
export const shape = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);
export const text = (x, y, words, kind = "ink", anchor = "start", more = {}) =>
  shape("text", { x, y, class: kind, "text-anchor": anchor, ...more }, words);

export const drawing = (width, height, label, ...children) =>
  shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);

// Changes of what is drawn again and again: what is there already is not written again, which a browser would act upon.
export function put(node, attributes) {
  const known = (node.known ??= {});
  for (const name in attributes) if (known[name] !== attributes[name]) node.setAttribute(name, (known[name] = attributes[name]));
}
export function write(node, words) {
  if (node.written !== words) node.textContent = node.written = words;
}

// From data to the units of a drawing, and back.
export function axis(low, high, from, to) {
  const span = high - low || 1;
  const place = value => from + ((value - low) / span) * (to - from);
  place.back = at => low + ((at - from) / (to - from || 1)) * span;
  return place;
}

// About `count` round numbers from low to high.
export function ticks(low, high, count = 5) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map(each => each * power).find(each => each >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}
