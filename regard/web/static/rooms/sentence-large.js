// The large picture of one head: every cell or line where there are few words, and else a map that is zoomed.
import { element } from "../elements.js";
import { latest } from "../server.js";
import { largestOf, percent, plain, threeDigits } from "../numbers.js";
import { cut, legendOf, matrix } from "../weights.js";
import { lines } from "./sentence-lines.js";
import { within, zoomMap } from "./sentence-map.js";
import { numbers } from "./sentence-overview.js";
import { texts } from "./sentence-texts.js";

export const DRAWN = 40; // words on a side up to which each is drawn
const KEYS = "Arrow up and down choose a word, left and right a head.";
const LEGEND = 250; // units: five entries of three digits each
const NUMBERED = 21; // units on a side of a cell from which it has its number

// `fetch(known, part, signal)` answers with a part of the map of what is shown.
export function largePicture({ fetch, onchoose, onkey, onshown }) {
  const source = element("h2", { class: "source" }), pointed = element("p", { class: "pointed quiet-line", "aria-hidden": "true" });
  const picture = element("div", { class: "picture" }), legend = element("div", { class: "legend" }), caption = element("figcaption");
  const root = element("figure", { class: "large" }, picture, element("div", { class: "below" }, legend, pointed), caption);
  const asking = latest();
  let known = null, settings = null, word = 0, whole = null, map = null;

  const isSmall = () => known.queries.length <= DRAWN && known.keys.length <= DRAWN;
  const unit = () => (known.is_long || settings.unit === "pieces" ? "pieces" : "words");
  const label = () => `${whole?.source ?? ""}: weights of ${known.queries.length} × ${known.keys.length} ${unit()}`;
  const room = () => Math.max(Math.round(picture.clientWidth || 480), 260);
  const sentence = notes => notes.filter(Boolean).map(each => `${each[0].toUpperCase()}${each.slice(1)}.`).join(" ");
  const fit = svg => {
    svg.style.maxWidth = `${svg.viewBox.baseVal.width}px`;
    return svg;
  };

  function name(given) {
    const { telling } = known, isTelling = telling && settings.show === "head" && settings.layer === telling[0] && settings.head === telling[1];
    source.textContent = `${given[0].toUpperCase()}${given.slice(1)}${isTelling ? ", the most telling" : ""}`;
  }

  function pointAt(row, column) {
    pointed.textContent = row === undefined || !whole ? "" : `${whole.rows[row]} → ${whole.columns[column]}: ${threeDigits(whole.weights[row][column])}`;
  }

  const unpacked = (found, rows, columns) => {
    const flat = numbers(found.weights), [height, width] = found.size;
    return { ...found, rows, columns, weights: Array.from({ length: height }, (_, row) => [...flat.subarray(row * width, (row + 1) * width)]) };
  };

  // A drawing that keys go through.
  function frame(drawn) {
    const hadFocus = picture.contains(document.activeElement);
    const framed = element("div", { class: "frame", tabindex: "0", role: "application", onkeydown: onkey, "aria-label": `${label()}. ${KEYS}` }, fit(drawn));
    picture.replaceChildren(framed);
    if (hadFocus) framed.focus({ preventScroll: true });
  }

  // Words that are drawn one by one: all of them, or those around the one that is chosen.
  function paint(from = 0) {
    const { rows, columns, weights } = whole;
    const given = { rows, columns, weights, chosen: word - from, onpoint: pointAt, onchoose: row => onchoose(row + from), label: label() };
    const width = room(), isMatrix = settings.view === "matrix";
    const cell = Math.max(Math.min((width - 46 - namesOf(rows) * 7.2) / columns.length, 40, 520 / rows.length), 7);
    const drawn = isMatrix ? matrix({ ...given, width: width - 40, cell })
      : known.is_square ? lines({ ...given, width: Math.min(width, 560) }) : texts({ ...given, width: Math.min(width, 640) });
    frame(drawn);
    name(whole.source);
    legend.replaceChildren(...(isMatrix ? [fit(legendOf(largestOf(weights.flat()), { width: LEGEND }))] : []));
    const axes = isMatrix ? `Rows are queries, columns are keys${cell >= NUMBERED ? "; cells are percents" : ""}.`
      : known.is_square ? "Thickness is weight." : "What is read stands above, what is written below. Thickness is weight.";
    const inside = weights[word - from].reduce((sum, each) => sum + each, 0);
    const around = isSmall() ? "" : ` ${rows.length.toLocaleString("en")} of ${known.queries.length.toLocaleString("en")} are drawn, around the one chosen, of whose weight ${percent(inside)} is here.`;
    caption.textContent = `${axes}${around} ${sentence(isMatrix ? whole.notes : whole.notes.filter(each => !each.startsWith("rows are")))}`;
    pointAt();
  }
  const namesOf = names => Math.min(Math.max(...names.map(each => [...each].length), 1), 16);

  // Of a long text: as a map, or as lines among the words around the one that is chosen.
  async function drawMap(isOther) {
    if (!map) {
      map = zoomMap({ fetch: (rows, columns, size, signal) => fetch(known, { rows, columns, size }, signal), onchoose, onpoint: pointCell, onpart: describePart });
      isOther = true;
    }
    if (!picture.contains(map.root)) picture.replaceChildren(map.root);
    whole = null;
    map.mark(word);
    return map.show(known.queries, known.keys, isOther);
  }

  async function drawWindow() {
    endMap();
    const span = (size, at) => {
      const from = Math.max(Math.min(at - DRAWN / 2, size - DRAWN), 0);
      return [from, Math.min(from + DRAWN, size)];
    };
    const rows = span(known.queries.length, word), middle = Math.round((word * known.keys.length) / known.queries.length);
    const columns = known.is_square ? rows : span(known.keys.length, middle);
    const found = await asking(signal => fetch(known, { rows, columns, size: [DRAWN, DRAWN] }, signal));
    if (found === undefined) return false;
    whole = unpacked(found, known.queries.slice(...rows), known.keys.slice(...columns));
    paint(rows[0]);
    return true;
  }

  async function drawAll(isOther) {
    endMap();
    const found = await asking(signal => fetch(known, { size: [DRAWN, DRAWN] }, signal));
    if (found === undefined) return false;
    whole = unpacked(found, known.queries, known.keys);
    if (isOther) word = striking();
    paint();
    return true;
  }

  // The word to begin with: whose heaviest weight is on one that is not near.
  function striking() {
    let best = [-1, 0];
    whole.weights.forEach((row, place) => row.forEach((weight, column) => {
      if (weight > best[0] && (!known.is_square || Math.abs(place - column) > 2)) best = [weight, place];
    }));
    return best[1];
  }

  function describePart(found) {
    name(found.source);
    const [[r0, r1], [height, width]] = [found.rows, found.size], down = (r1 - r0) / height, across = (found.columns[1] - found.columns[0]) / width;
    const cells = Math.max(down, across) > 1.01 ? `A cell is about ${plain(down, 2)} × ${plain(across, 2)} ${unit()}: what one of its queries gives to its keys together, on average.` : "Each cell is one weight.";
    caption.textContent = `Rows are queries, columns are keys. ${cells} ${sentence(found.notes)}`;
    legend.replaceChildren(fit(legendOf(found.largest || 1, { width: LEGEND })));
    onshown();
  }

  function pointCell(cell) {
    const named = (names, [from, to]) => (to > from ? `${cut(names[from], 16)} … ${cut(names[to], 16)}` : cut(names[from], 24));
    pointed.textContent = cell ? `${named(known.queries, cell.rows)} → ${named(known.keys, cell.columns)}: ${threeDigits(cell.weight)}` : "";
  }

  function endMap() {
    map?.end();
    map = null;
  }

  const sized = new ResizeObserver(() => { if (whole && isSmall()) paint(); });
  sized.observe(root);

  return {
    root, source, unit,
    get word() { return word; },
    // Another text, another head, or another way of drawing. Whether it was drawn: false where a later one has begun.
    async draw(given, chosen, isOther) {
      // Of the same text, cut or shown otherwise, the word that was chosen stays so, if it is there.
      const isSame = known?.body.text === given.body.text && known.body.target === given.body.target;
      const held = isOther && isSame ? given.queries.indexOf(known.queries[word]) : -1;
      [known, settings] = [given, chosen];
      if (isOther) word = Math.max(held, 0);
      const drawn = isSmall() ? drawAll(isOther && held < 0) : settings.view === "lines" ? drawWindow() : drawMap(isOther);
      const isDrawn = await drawn;
      if (isDrawn) onshown();
      return isDrawn;
    },
    async choose(row) {
      word = row;
      if (isSmall()) paint();
      else if (settings.view === "lines") await drawWindow();
      else map?.mark(row);
    },
    // The weights of the word that is chosen, where they are here.
    row: () => (isSmall() && whole ? whole.weights[word] : null),
    // What is visible, as numbers and names.
    shown() {
      if (whole) return whole;
      const { rows, columns, size, weights, source: of, notes } = map.part;
      const named = (names, span, count) => Array.from({ length: count }, (_, at) => {
        const [first, last] = within(span, count, at, names.length);
        return last > first ? `${names[first]} … ${names[last]}` : names[first];
      });
      const clipped = ([from, to], most) => [Math.ceil(from - 1e-9), Math.min(Math.ceil(to - 1e-9), most)];
      return {
        source: of, notes, part: { rows: clipped(rows, known.queries.length), columns: clipped(columns, known.keys.length) }, rows: named(known.queries, rows, size[0]), columns: named(known.keys, columns, size[1]),
        weights: Array.from({ length: size[0] }, (_, row) => [...weights.subarray(row * size[1], (row + 1) * size[1])]),
      };
    },
    picture() {
      const drawn = picture.querySelector("svg");
      if (drawn) return drawn;
      const made = map.picture(caption.textContent), place = element("div", { class: "unseen", "aria-hidden": "true" }, made);
      root.append(place); // its styles are read where it stands in the page
      setTimeout(() => place.remove(), 0);
      return made;
    },
    end() {
      asking.end();
      endMap();
      sized.disconnect();
    },
  };
}
