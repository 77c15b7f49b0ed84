// What every room hands out: its picture (SVG), its data (CSV, JSON), and the lines of Python that compute it.
import { element, text } from "./elements.js";
import { button } from "./controls.js";
import { fail, say } from "./said.js";

function download(name, kind, content) {
  const url = URL.createObjectURL(new Blob([content], { type: kind }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const TITLE = 26; // the height of a line above a picture

// What of a style a picture needs that stands alone.
const DRAWN = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "opacity",
  "font-family", "font-size", "font-weight", "font-style", "text-anchor", "paint-order", "display", "visibility",
];

// A drawing as a file of its own, in the colours that are on the screen, on the page's background; its title above it.
export function standalone(svg, title = "") {
  const copy = svg.cloneNode(true);
  const [before, after] = [svg, copy].map(each => [each, ...each.querySelectorAll("*")]);
  before.forEach((each, place) => {
    const style = getComputedStyle(each);
    for (const name of DRAWN) {
      const value = style.getPropertyValue(name);
      if (value && value !== "none" || name === "fill" || name === "stroke") after[place].setAttribute(name, value);
    }
    for (const name of ["class", "style", "tabindex", "role"]) if (each !== svg || name !== "role") after[place].removeAttribute(name);
  });
  const [x, under, width, below] = copy.getAttribute("viewBox").split(/[\s,]+/).map(Number), room = title ? TITLE : 0;
  const [y, height] = [under - room, below + room], { color, fontFamily } = getComputedStyle(document.body);
  copy.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  if (title) {
    const most = Math.max(Math.floor(width / 8), 10), signs = [...title];
    copy.append(text(x + 4, y + 17, signs.length > most ? `${signs.slice(0, most - 1).join("")}…` : title, "", "start", {
      fill: color, "font-family": fontFamily, "font-size": "13px", "font-weight": "600",
    }));
  }
  const background = getComputedStyle(document.body).backgroundColor;
  copy.prepend(Object.entries({ x, y, width, height, fill: background }).reduce((rect, [name, value]) => {
    rect.setAttribute(name, value);
    return rect;
  }, document.createElementNS("http://www.w3.org/2000/svg", "rect")));
  return new XMLSerializer().serializeToString(copy).replace(/[\ufffe\uffff]/g, "\ufffd"); // which XML may not have
}

const DANGEROUS = /^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/; // what a spreadsheet would run
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const words = DANGEROUS.test(value) && !/^-\d+$/.test(value) ? `'${value}` : String(value); // a number is none
  return /[",;\t\n\r]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words;
}
export const csv = rows => rows.map(row => row.map(cell).join(",")).join("\r\n") + "\r\n";

// A text as a literal of Python: what JSON escapes, Python reads the same way, but for signs beyond 16 bits.
export const literal = words =>
  JSON.stringify(words).replace(/[\u007f-\uffff]/g, sign => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .replace(/\\ud([89ab][0-9a-f]{2})\\ud([c-f][0-9a-f]{2})/g, (_, high, low) => {
      const point = 0x10000 + ((parseInt(`d${high}`, 16) - 0xd800) << 10) + (parseInt(`d${low}`, 16) - 0xdc00);
      return `\\U${point.toString(16).padStart(8, "0")}`;
    });
export const number = value => (Number.isInteger(value) ? `${value}` : String(Number(value.toPrecision(12))));

// The row of buttons. `picture` gives the SVG element, `title` what stands above it, `rows` the CSV's rows, `data` an object, `python` the lines.
export function saving(name, { picture, title = () => "", rows, data, python }) {
  const lines = element("pre", { class: "python", tabindex: "0", hidden: true, "aria-label": "Lines of Python" });
  const guarded = work => async () => {
    try {
      await work();
    } catch (error) {
      fail(error);
    }
  };
  const show = button("Python", guarded(async () => {
    lines.hidden = !lines.hidden;
    show.setAttribute("aria-expanded", String(!lines.hidden));
    lines.textContent = lines.hidden ? "" : await python();
    if (!lines.hidden) lines.scrollIntoView({ block: "nearest" }); // they may open below what is on the screen
  }), { "aria-expanded": "false" });
  const copy = button("Copy Python", guarded(async () => {
    await navigator.clipboard.writeText(await python());
    say("Copied.");
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy Python"; }, 2000);
  }));
  const root = element("div", { class: "saving" },
    element("div", { class: "buttons", role: "group", "aria-label": "Save" },
      button("SVG", guarded(async () => download(`${name}.svg`, "image/svg+xml", standalone(await picture(), title())))),
      button("CSV", guarded(async () => download(`${name}.csv`, "text/csv", csv(await rows())))),
      button("JSON", guarded(async () => download(`${name}.json`, "application/json", JSON.stringify(await data(), null, 1)))),
      show, navigator.clipboard ? copy : null),
    lines);
  // Lines that are shown follow what is drawn.
  root.refresh = guarded(async () => { if (!lines.hidden) lines.textContent = await python(); });
  return root;
}
