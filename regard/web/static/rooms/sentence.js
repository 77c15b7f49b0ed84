// A sentence: what each of its words attends to, in every head of a real model.
import { drawing, element } from "../elements.js";
import { ask, latest } from "../server.js";
import { saving } from "../saving.js";
import { button, checkbox, choice, panel, select } from "../controls.js";
import { fail, tell } from "../said.js";
import { largestOf, onTheme, percent, plain, threeDigits } from "../numbers.js";
import { bars, cut, legendOf, matrix } from "../weights.js";
import { lines } from "./sentence-lines.js";
import { zoomMap } from "./sentence-map.js";
import { numbers, overview } from "./sentence-overview.js";
import { python } from "./sentence-python.js";

const FIRST = "When he saw his owner, the dog was happy, so he wagged his tail";
const PAUSE = 150; // milliseconds without a key until a text is read
const DRAWN = 40; // words on a side up to which every cell is drawn with its own shape
const LISTED = 14; // words in the list of what one attends to
const SHOWS = [["head", "One head"], ["layer", "Mean of a layer"], ["all", "Mean of all"], ["rollout", "Rollout"]];
const PARTS = { encoder: "What is read, to itself", decoder: "What is written, to itself", cross: "What is written, to what is read" };

let kept = { text: FIRST, target: "" }; // while the page is open, and nowhere else

export function mount(root, { about, state, keep }) {
  const settings = {};
  let known = null, map = null, word = null, whole = null, pending = null, problem = "";
  const reading = latest(), drawing_ = latest(), listing = latest(), looking = latest();

  // What is typed, and what is shown of it -----------------------------------------------------------------------
  const title = element("h1", {}, "What each word attends to");
  const lead = element("p", { class: "lead" }, `${about.model ?? "MiniLM"} reads a sentence. Every head of every layer spreads each word’s attention over all words.`);
  const typed = element("textarea", { id: "sentence-text", rows: "2", spellcheck: "false", dir: "auto", maxlength: "400000" });
  typed.value = kept.text;
  const target = element("textarea", { id: "sentence-target", rows: "1", spellcheck: "false", dir: "auto", maxlength: "400000" });
  target.value = kept.target;
  const written = element("div", { class: "written", hidden: true }, element("label", { for: "sentence-target" }, "What is written: the model’s own, unless you type another"), target);
  const writing = element("div", { class: "writing" }, element("label", { class: "unseen", for: "sentence-text" }, "Your text"), typed, written);
  const trouble = element("p", { class: "trouble", role: "status" });

  const source = element("h2", { class: "source" }), pointed = element("p", { class: "pointed quiet-line", "aria-hidden": "true" });
  const view = choice({ label: "Picture", name: "sentence-view", options: [["matrix", "Matrix"], ["lines", "Lines"]], value: "matrix", onchange: each => set({ view: each }) });
  const picture = element("div", { class: "picture" });
  const legend = element("div", { class: "legend" }), caption = element("figcaption");
  const large = element("figure", { class: "large" }, picture, element("div", { class: "below" }, legend, pointed), caption);

  const wordName = element("h3", { class: "word-name" }), spread = element("p", { class: "caption" }), list = element("div", { class: "list" });
  const step = by => choose(Math.min(Math.max((word ?? 0) + by, 0), known.queries.length - 1));
  const steps = element("div", { class: "steps", role: "group", "aria-label": "Word" },
    button("‹", () => step(-1), { "aria-label": "The word before" }), button("›", () => step(1), { "aria-label": "The next word" }));
  const one = element("figure", { class: "one" }, element("div", { class: "one-head" }, wordName, steps), list, spread);
  const pictures = element("div", { class: "pictures" }, large, one);

  // Which head, and how -------------------------------------------------------------------------------------------
  const heads = overview({ onchoose: (layer, head) => set({ show: "head", layer, head }) });
  const headsNote = element("p", { class: "caption" });
  const order = select({
    label: "Order", name: "sentence-order", value: "place", onchange: each => set({ order: each }),
    options: [["place", "Layers down, heads across"], ["entropy", "By entropy, sharpest first"], ["distance", "By distance, nearest first"]],
  });
  const telling = button("Most telling head", () => known?.telling && set({ show: "head", layer: known.telling[0], head: known.telling[1] }), { title: "Whose weights depend most on both words, and least on places" });
  const show = select({ label: "Weights of", name: "sentence-show", options: SHOWS, value: "head", onchange: each => set({ show: each }) });
  const unit = choice({ label: "Cut into", name: "sentence-unit", options: [["words", "Words"], ["pieces", "Pieces"]], value: "words", onchange: each => set({ unit: each }) });
  const specials = checkbox({ label: "Show what is set aside", name: "sentence-specials", value: false, onchange: each => set({ specials: each }) });
  const part = select({ label: "Attention", name: "sentence-part", options: [], onchange: each => set({ part: each }) });
  part.root.hidden = true;

  const files = saving("sentence", {
    picture: asPicture,
    rows: () => [["", ...shown().columns], ...shown().weights.map((row, place) => [shown().rows[place], ...row])],
    data: () => ({ text: kept.text, model: known.model, part: known.part, source: shown().source, notes: shown().notes, rows: shown().rows, columns: shown().columns, weights: shown().weights }),
    python: () => python({ about, known, text: kept.text, settings: { ...settings, pieces: settings.unit === "pieces", target: kept.target } }),
  });

  root.append(
    element("div", { class: "stage" }, title, lead, writing, trouble,
      element("div", { class: "source-line" }, source, view.root), pictures, files),
    element("div", { class: "side" },
      panel("All heads", heads.root, headsNote, element("div", { class: "row-of" }, telling), order.root),
      panel("Shown", part.root, show.root, unit.root, specials.root)));

  // Asking ----------------------------------------------------------------------------------------------------------
  const body = () => ({
    text: kept.text, pieces: settings.unit === "pieces", specials: settings.specials,
    ...(settings.part ? { part: settings.part } : {}), ...(kept.target.trim() && settings.part !== "encoder" ? { target: kept.target } : {}),
  });
  const chosenHead = () => ({
    ...(settings.show === "head" || settings.show === "layer" ? { layer: settings.layer } : {}),
    ...(settings.show === "head" ? { head: settings.head } : {}), rollout: settings.show === "rollout",
  });

  // The text, or how it is cut, is another.
  async function read() {
    clearTimeout(pending);
    if (!kept.text.trim()) {
      reading.end();
      said("Write a sentence: its words appear here.");
      return;
    }
    pictures.classList.add("busy");
    try {
      const found = await reading(signal => ask("sentence", "look", body(), signal));
      if (found === undefined) return;
      known = { ...found, keys: found.keys ?? found.queries };
      said("");
      settle();
      await draw(true);
      await small();
    } catch (error) {
      said(error.message);
    }
  }

  function said(words) {
    problem = words;
    trouble.textContent = words;
    pictures.classList.toggle("busy", Boolean(words));
  }

  // What was chosen may not be there in this text or model.
  function settle() {
    const { n_layers: layers, n_heads: count } = known;
    if (settings.layer === null || settings.layer >= layers || settings.head === null || settings.head >= count)
      [settings.layer, settings.head] = known.telling ?? [Math.min(settings.layer ?? 0, layers - 1), Math.min(settings.head ?? 0, count - 1)];
    if (known.is_long || (settings.show === "rollout" && !known.is_square)) settings.show = "head";
    settings.part = known.parts.length > 1 ? known.part : null;
    part.root.hidden = known.parts.length < 2;
    part.fill(known.parts.map(each => [each, PARTS[each]]), known.part);
    show.fill(SHOWS.filter(([each]) => each === "head" || (!known.is_long && (each !== "rollout" || known.is_square))), settings.show);
    for (const each of unit.root.querySelectorAll("input")) each.disabled = known.is_long;
    telling.disabled = !known.telling;
    written.hidden = known.written === null;
    if (known.written !== null) target.placeholder = cut(known.written, 300);
    lead.textContent = `${known.model} reads ${plain(known.n_pieces[1])} pieces, [model] ${known.n_layers} layers of ${known.n_heads} heads`.replace(" [model]", " in") +
      `${known.is_causal ? ", each word after those before it" : ""}. Every head spreads each word’s attention over ${known.is_square ? "all words" : "the words that were read"}.`;
    sync();
  }

  function sync() {
    view.set(settings.view);
    show.set(settings.show);
    unit.set(settings.unit);
    specials.set(settings.specials);
    order.set(settings.order);
    heads.mark(settings.show === "rollout" ? null : { layer: settings.show === "all" ? null : settings.layer, head: settings.show === "head" ? settings.head : null });
    keep({
      view: settings.view, show: settings.show, layer: settings.layer, head: settings.head, unit: settings.unit,
      specials: settings.specials ? 1 : null, order: settings.order === "place" ? null : settings.order, part: settings.part,
    });
  }

  const isSmall = () => known.queries.length <= DRAWN && known.keys.length <= DRAWN;

  // The large picture: of another head, or of another text.
  async function draw(isOther = false) {
    if (!known) return;
    try {
      if (isOther) {
        word = null;
        whole = null;
      }
      if (isSmall()) {
        map?.end();
        map = null;
        const found = await drawing_(signal => ask("sentence", "map", { ...body(), ...chosenHead(), size: [64, 64] }, signal));
        if (found === undefined) return;
        whole = unpacked(found, known.queries, known.keys);
        if (word === null) word = telltale(whole.weights);
        paintSmall();
      } else {
        await drawLong(isOther);
      }
      pictures.classList.toggle("busy", Boolean(problem));
      files.refresh();
    } catch (error) {
      said(error.message);
    }
  }

  const unpacked = (found, rows, columns) => {
    const flat = numbers(found.weights), [height, width] = found.size;
    return { ...found, rows, columns, weights: Array.from({ length: height }, (_, row) => [...flat.subarray(row * width, (row + 1) * width)]) };
  };

  // The word to begin with: whose heaviest weight is on one that is not near.
  function telltale(weights) {
    let best = [-1, 0];
    weights.forEach((row, place) => row.forEach((weight, column) => {
      if (weight > best[0] && (!known.is_square || Math.abs(place - column) > 2)) best = [weight, place];
    }));
    return best[1];
  }

  const label = () => `${whole?.source ?? ""}: weights of ${known.queries.length} × ${known.keys.length} ${settings.unit}`;
  const roomOf = node => Math.max(Math.round(node.clientWidth || 480), 260);

  function paintSmall() {
    if (!whole) return;
    const given = { rows: whole.rows, columns: whole.columns, weights: whole.weights, chosen: word, onpoint: pointAt, onchoose: choose, label: label() };
    const width = roomOf(picture);
    const drawn = settings.view === "lines" ? lines({ ...given, width: Math.min(width, 560) }) : matrix({ ...given, width: width - 40, cell: cellFor(width) });
    fit(drawn);
    const frame = element("div", {
      class: "frame", tabindex: "0", role: "application", onkeydown: keys,
      "aria-label": `${label()}. Arrow up and down choose a word, left and right a head.`,
    }, drawn);
    const hadFocus = picture.contains(document.activeElement);
    picture.replaceChildren(frame);
    if (hadFocus) frame.focus({ preventScroll: true });
    source.textContent = sourceName(whole.source);
    caption.textContent = `${settings.view === "lines" ? "Thickness is weight" : "Rows are queries, columns are keys; cells are percents"}. ${sentence(whole.notes)}`;
    legend.replaceChildren(...(settings.view === "matrix" ? [fit(legendOf(largestOf(whole.weights.flat())))] : []));
    pointAt();
    paintWord(whole.columns.map((name, place) => ({ name, place, weight: whole.weights[word][place] })).sort((one, other) => other.weight - one.weight));
  }

  const cellFor = width => {
    const letters = names => Math.min(Math.max(...names.map(each => [...each].length), 1), 16);
    return Math.max(Math.min((width - 46 - letters(whole.rows) * 7.2) / whole.columns.length, 40, 520 / whole.rows.length), 7);
  };
  const fit = svg => {
    svg.style.maxWidth = `${svg.viewBox.baseVal.width}px`;
    return svg;
  };
  const sentence = notes => notes.map(each => each && `${each[0].toUpperCase()}${each.slice(1)}.`).join(" ") + (known.unknown && !notes.includes(known.unknown) ? ` ${known.unknown}.` : "");
  const sourceName = words => words[0].toUpperCase() + words.slice(1) + (known.telling && settings.show === "head" && settings.layer === known.telling[0] && settings.head === known.telling[1] ? ", the most telling" : "");

  function pointAt(row, column) {
    if (row === undefined || !whole) pointed.textContent = "";
    else pointed.textContent = `${whole.rows[row]} → ${whole.columns[column]}: ${threeDigits(whole.weights[row][column])}`;
  }

  function paintWord(entries, more = {}) {
    const name = known.queries[word];
    wordName.textContent = `“${cut(name, 24)}” attends to`;
    const listed = entries.slice(0, LISTED), rest = entries.slice(LISTED).reduce((sum, each) => sum + each.weight, 0) + (more.rest ?? 0);
    const others = (more.count ?? entries.length) - listed.length;
    list.replaceChildren(fit(bars(listed, {
      width: roomOf(list), names: 12, label: `What ${name} attends to: ${listed.slice(0, 3).map(each => `${each.name} ${percent(each.weight)}`).join(", ")}`,
      onchoose: known.is_square ? place => choose(listed[place].place) : undefined,
    })));
    const entropy = more.entropy ?? entries.reduce((sum, { weight }) => sum - (weight > 0 ? weight * Math.log(weight) : 0), 0);
    spread.textContent = `${others > 0 ? `${others.toLocaleString("en")} more share ${percent(rest)}. ` : ""}As spread as ${plain(Math.exp(entropy), 2)} words of equal weight.`;
    tell(`${name} attends to ${listed.slice(0, 3).map(each => `${each.name} ${percent(each.weight)}`).join(", ")}`);
  }

  // A text of more words than can be drawn one by one.
  async function drawLong(isOther) {
    if (word === null) word = 0;
    word = Math.min(word, known.queries.length - 1);
    whole = null;
    if (settings.view === "lines") await drawWindow();
    else {
      if (!map) {
        map = zoomMap({
          fetch: (rows, columns, size, signal) => ask("sentence", "map", { ...body(), ...chosenHead(), rows, columns, size }, signal),
          onchoose: choose, onpoint: pointCell, onpart: describePart,
        });
        picture.replaceChildren(map.root);
        isOther = true;
      } else if (!picture.contains(map.root)) picture.replaceChildren(map.root);
      map.mark(word);
      await map.show(known.queries, known.keys, isOther);
    }
    await listWord();
  }

  function describePart(found) {
    source.textContent = sourceName(found.source);
    const [[r0, r1], [height]] = [found.rows, found.size], cell = Math.round((r1 - r0) / height);
    caption.textContent = `Rows are queries, columns are keys. ${cell > 1 ? `A cell is about ${plain(cell)} × ${plain((found.columns[1] - found.columns[0]) / found.size[1])} ${known.is_long ? "pieces" : settings.unit}: what one of its queries gives to its keys together, on average.` : "Each cell is one weight."} ${sentence(found.notes)}`;
    legend.replaceChildren(fit(legendOf(found.largest)));
  }

  function pointCell(cell) {
    if (!cell) {
      pointed.textContent = "";
      return;
    }
    const name = (names, [from, to]) => (to > from ? `${cut(names[from], 16)} … ${cut(names[to], 16)}` : cut(names[from], 24));
    pointed.textContent = `${name(known.queries, cell.rows)} → ${name(known.keys, cell.columns)}: ${threeDigits(cell.weight)}`;
  }

  async function listWord() {
    const found = await listing(signal => ask("sentence", "row", { ...body(), ...chosenHead(), place: word, most: LISTED }, signal));
    if (found === undefined) return;
    paintWord(found.places.map((place, at) => ({ name: known.keys[place], place, weight: found.weights[at] })), { rest: found.rest, entropy: found.entropy, count: known.keys.length });
  }

  // Lines among the words around the one that is chosen.
  async function drawWindow() {
    map?.end();
    map = null;
    const span = (size, at) => {
      const from = Math.max(Math.min(at - DRAWN / 2, size - DRAWN), 0);
      return [from, Math.min(from + DRAWN, size)];
    };
    const rows = span(known.queries.length, word), columns = known.is_square ? rows : span(known.keys.length, Math.round((word * known.keys.length) / known.queries.length));
    const found = await drawing_(signal => ask("sentence", "map", { ...body(), ...chosenHead(), rows, columns, size: [DRAWN, DRAWN] }, signal));
    if (found === undefined) return;
    const part_ = (whole = unpacked(found, known.queries.slice(...rows), known.keys.slice(...columns)));
    const drawn = fit(lines({ rows: part_.rows, columns: part_.columns, weights: part_.weights, chosen: word - rows[0], width: Math.min(roomOf(picture), 560), label: label(), onchoose: place => choose(place + rows[0]), onpoint: pointAt }));
    const hadFocus = picture.contains(document.activeElement);
    const frame = element("div", { class: "frame", tabindex: "0", role: "application", onkeydown: keys, "aria-label": `${label()}. Arrow up and down choose a word, left and right a head.` }, drawn);
    picture.replaceChildren(frame);
    if (hadFocus) frame.focus({ preventScroll: true });
    source.textContent = sourceName(found.source);
    const inside = part_.weights[word - rows[0]].reduce((sum, each) => sum + each, 0);
    caption.textContent = `Thickness is weight. ${rows[1] - rows[0]} of ${known.queries.length.toLocaleString("en")} are drawn, around the one chosen, of whose weight ${percent(inside)} is here. ${sentence(found.notes)}`;
    legend.replaceChildren();
  }

  function choose(row) {
    if (!known || row === word || row < 0 || row >= known.queries.length) return;
    word = row;
    if (isSmall()) paintSmall();
    else {
      if (settings.view === "lines") drawWindow().catch(fail);
      else map?.mark(word);
      listWord().catch(fail);
    }
  }

  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step_ = { ArrowUp: -1, ArrowDown: 1 }[event.key], turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step_) step(step_);
    else if (turn && settings.show === "head") {
      const at = settings.layer * known.n_heads + settings.head + turn;
      if (at >= 0 && at < known.n_layers * known.n_heads) set({ layer: Math.floor(at / known.n_heads), head: at % known.n_heads });
    } else return;
    event.preventDefault();
  }

  // All heads, small: at once, or for a long text a layer at a time.
  async function small() {
    const about_ = known;
    try {
      await looking(async signal => {
        for (const layer of about_.is_long ? Array.from({ length: about_.n_layers }, (_, at) => at) : [null]) {
          const found = await ask("sentence", "heads", { ...body(), ...(layer === null ? {} : { layer }) }, signal);
          if (signal.aborted || about_ !== known) return;
          heads.show(found, about_);
        }
      });
    } catch (error) {
      fail(error);
      return;
    }
    const { distances, entropies } = heads.stats;
    order.input.querySelector("[value=entropy]").disabled = !entropies;
    order.input.querySelector("[value=distance]").disabled = !distances;
    heads.order(settings.order);
    describeHead();
  }

  function describeHead() {
    const { distances, entropies } = heads.stats, { layer, head } = settings;
    const said_ = [
      entropies?.[layer] ? `entropy ${plain(entropies[layer][head])} nats` : null, distances?.[layer] ? `${plain(distances[layer][head])} pieces away` : null,
    ].filter(each => each);
    headsNote.textContent = known.is_long ? "Of 24 queries, evenly spaced, the heaviest weights; the order by entropy or distance is for shorter texts."
      : settings.show === "head" && said_.length ? `Layer ${layer}, head ${head}: ${said_.join(", ")} on average, over all pieces.` : "Layers go down, heads across. Click one, or move with the arrow keys.";
  }

  // What the reader sets ----------------------------------------------------------------------------------------------
  function set(changed) {
    const before = { ...settings };
    Object.assign(settings, changed);
    sync();
    const is = (...names) => names.some(each => before[each] !== settings[each]);
    if (is("unit", "specials", "part")) read();
    else if (is("show", "layer", "head")) draw();
    else if (is("view") && known) isSmall() ? paintSmall() : draw();
    if (is("order")) heads.order(settings.order);
    if (known) describeHead();
  }

  function take(given) {
    const number = each => (/^\d{1,4}$/.test(each ?? "") ? Number(each) : null);
    const one_ = (each, of) => (of.includes(each) ? each : of[0]);
    return {
      view: one_(given.view, ["matrix", "lines"]), show: one_(given.show, SHOWS.map(([each]) => each)), layer: number(given.layer), head: number(given.head),
      unit: one_(given.unit, ["words", "pieces"]), specials: given.specials === "1", order: one_(given.order, ["place", "entropy", "distance"]),
      part: given.part in PARTS ? given.part : null,
    };
  }

  // The picture that is saved, of what is visible.
  function shown() {
    if (whole) return whole;
    const { rows, columns, size, weights, source: of, notes } = map.part;
    const named = (names, [from, to], count) => Array.from({ length: count }, (_, at) => {
      const first = Math.ceil(from + (at * (to - from)) / count - 1e-9), last = Math.ceil(from + ((at + 1) * (to - from)) / count - 1e-9) - 1;
      return last > first ? `${names[first]} … ${names[last]}` : names[first];
    });
    return {
      source: of, notes, rows: named(known.queries, rows, size[0]), columns: named(known.keys, columns, size[1]),
      weights: Array.from({ length: size[0] }, (_, row) => [...weights.subarray(row * size[1], (row + 1) * size[1])]),
    };
  }

  function asPicture() {
    const drawn = picture.querySelector("svg");
    if (drawn) return drawn;
    const made = map.picture(caption.textContent), place = element("div", { class: "unseen", "aria-hidden": "true" }, made);
    root.append(place); // its styles are read where it stands in the page
    setTimeout(() => place.remove(), 0);
    return made;
  }

  for (const [field, name] of [[typed, "text"], [target, "target"]])
    field.addEventListener("input", () => {
      kept[name] = field.value;
      clearTimeout(pending);
      pending = setTimeout(read, PAUSE);
    });

  const sized = new ResizeObserver(() => { if (whole && isSmall()) paintSmall(); });
  sized.observe(large);
  const offTheme = onTheme(heads.draw);
  Object.assign(settings, take(state));
  sync();
  read();

  return {
    go(given) { set(take(given)); },
    leave() {
      clearTimeout(pending);
      for (const each of [reading, drawing_, listing, looking]) each.end();
      map?.end();
      sized.disconnect();
      offTheme();
    },
  };
}
