// A sentence: what each of its words attends to, in every head of a real model.
import { element } from "../elements.js";
import { ask, latest } from "../server.js";
import { saving } from "../saving.js";
import { button, checkbox, choice, panel, select } from "../controls.js";
import { fail } from "../said.js";
import { onTheme, plain } from "../numbers.js";
import { largePicture } from "./sentence-large.js";
import { overview } from "./sentence-overview.js";
import { python } from "./sentence-python.js";
import { aboutHead, aboutText, fromAddress, ORDERS, PARTS, SHOWS, toAddress } from "./sentence-settings.js";
import { typing } from "./sentence-typing.js";
import { LISTED, oneWord } from "./sentence-word.js";

const FIRST = "When he saw his owner, the dog was happy, so he wagged his tail";
const SLOW = 700; // milliseconds after which it is said that a text is being read
const ASIDE = "Show what is set aside";

let kept = { text: FIRST, target: "" }; // while the page is open, and nowhere else

export function mount(root, { about, state, keep }) {
  const settings = fromAddress(state);
  let known = null, model = null, turn = 0; // what is known of the text that is shown, and of the model; how often one was read
  const reading = latest(), listing = latest(), looking = latest();

  // What is typed, and what is shown of it -----------------------------------------------------------------------
  const introduced = `${about.model ?? "MiniLM"} reads a sentence. Every head of every layer spreads each word’s attention over all words.`;
  const lead = element("p", { class: "lead" }, introduced);
  const typed = typing({ kept, onpause: read });
  const waiting = element("p", { class: "reading quiet-line", role: "status" });
  const trouble = element("p", { class: "trouble", role: "status" });
  const large = largePicture({
    fetch: ({ body }, part, signal) => ask("sentence", "map", { ...body, ...aboutHead(settings), ...part }, signal),
    onchoose: choose, onkey: key, onshown: () => known && files.refresh(),
  });
  const one = oneWord({ onstep: step, onchoose: choose });
  const view = choice({ label: "Picture", name: "sentence-view", options: [["matrix", "Matrix"], ["lines", "Lines"]], value: "matrix", onchange: each => set({ view: each }) });
  const files = saving("sentence", {
    picture: large.picture,
    title: () => `${known.model}, ${large.source.textContent}: ${known.body.text.trim().replace(/\s+/g, " ").slice(0, 200)}`,
    rows: () => {
      const { rows, columns, weights } = large.shown();
      return [["", ...columns], ...weights.map((row, place) => [rows[place], ...row])];
    },
    data: () => {
      const { source, notes, rows, columns, weights } = large.shown();
      return { text: known.body.text, model: known.model, part: known.part, source, notes, rows, columns, weights };
    },
    python: () => python({ about, known, settings, part: large.shown().part }),
  });
  const shown = element("div", { class: "shown", hidden: true },
    element("div", { class: "source-line" }, large.source, view.root),
    element("div", { class: "pictures" }, large.root, one.root), files);

  // Which head, and how -------------------------------------------------------------------------------------------
  const heads = overview({ onchoose: (layer, head) => set({ show: "head", layer, head }) });
  const headsNote = element("p", { class: "caption" });
  const order = select({ label: "Order", name: "sentence-order", value: "place", onchange: each => set({ order: each }), options: ORDERS });
  const telling = button("Most telling head", () => known?.telling && set({ show: "head", layer: known.telling[0], head: known.telling[1] }), { title: "Whose weights depend most on both words, and least on places" });
  const show = select({ label: "Weights of", name: "sentence-show", options: SHOWS, value: "head", onchange: each => set({ show: each }) });
  const unit = choice({ label: "Cut into", name: "sentence-unit", options: [["words", "Words"], ["pieces", "Pieces"]], value: "words", onchange: each => set({ unit: each }) });
  const specials = checkbox({ label: ASIDE, name: "sentence-specials", value: false, onchange: each => set({ specials: each }) });
  const part = select({ label: "Attention", name: "sentence-part", options: [], onchange: each => set({ part: each }) });
  part.root.hidden = true;
  const ofHeads = panel("All heads", heads.root, headsNote, element("div", { class: "row-of" }, telling), order.root);
  ofHeads.hidden = true;

  root.append(
    element("div", { class: "stage" }, element("h1", {}, "What each word attends to"), lead, typed.root, waiting, trouble, shown),
    element("div", { class: "side" }, ofHeads, panel("Shown", part.root, show.root, unit.root, specials.root)));

  // Asking ----------------------------------------------------------------------------------------------------------
  // The text, or how it is cut, is another.
  async function read() {
    typed.stop();
    for (const each of [reading, listing, looking]) each.end();
    if (!kept.text.trim()) {
      forget("Write a sentence: its words appear here.");
      return;
    }
    for (const each of [shown, ofHeads]) each.classList.add("busy");
    const mine = (turn += 1), since = performance.now(), slow = setTimeout(() => { waiting.textContent = "Reading …"; }, SLOW);
    try {
      const found = await reading(async signal => {
        if (about.model && !model) await meet(signal);
        const body = aboutText(kept, settings);
        return { ...(await ask("sentence", "look", body, signal)), body };
      });
      if (found === undefined) return;
      typed.took(performance.now() - since);
      known = { ...found, keys: found.keys ?? found.queries };
      settle();
      if (await draw(true)) await small();
    } catch (error) {
      forget(error.message);
    } finally {
      clearTimeout(slow);
      if (mine === turn) waiting.textContent = "";
    }
  }

  // A model that writes asks for what it is to write, whatever becomes of the first text.
  async function meet(signal) {
    model = await ask("sentence", "model", {}, signal);
    part.root.hidden = model.parts.length < 2;
    part.fill(model.parts.map(each => [each, PARTS[each]]), settings.part ?? model.part);
    if (!model.parts.includes(settings.part)) settings.part = null;
    typed.writes(model.parts.includes("cross") && settings.part !== "encoder");
  }

  function said(words) {
    trouble.textContent = words;
    if (words) lead.textContent = introduced;
    shown.hidden = ofHeads.hidden = Boolean(words) || !known;
  }

  // Of a text without an answer nothing is shown, least of all the weights of the one before.
  function forget(words) {
    known = null;
    said(words);
  }

  // What was chosen may not be there in this text or model.
  function settle() {
    const { n_layers: layers, n_heads: count } = known;
    if (settings.layer === null || settings.layer >= layers || settings.head === null || settings.head >= count)
      [settings.layer, settings.head] = known.telling ?? [Math.min(settings.layer ?? 0, layers - 1), Math.min(settings.head ?? 0, count - 1)];
    if (known.is_long || (settings.show === "rollout" && !known.is_square)) settings.show = "head";
    settings.part = known.parts.length > 1 ? known.part : null;
    if (settings.part) part.set(settings.part);
    show.fill(SHOWS.filter(([each]) => each === "head" || (!known.is_long && (each !== "rollout" || known.is_square))), settings.show);
    for (const each of unit.root.querySelectorAll("input")) each.disabled = known.is_long;
    specials.root.querySelector("label").textContent = known.aside.length ? `${ASIDE}: ${known.aside.join(", ")}` : ASIDE;
    telling.disabled = !known.telling;
    typed.writes(known.written !== null, known.written ?? "");
    lead.textContent = `${known.model} ${known.part === "decoder" && known.parts.length > 1 ? "writes" : "reads"} ${plain(known.n_pieces[1])} ${known.n_pieces[1] === 1 ? "piece" : "pieces"} (words, parts of words, signs), in ${known.n_layers} layers of ${known.n_heads} heads. ` +
      (!known.is_square ? "Every head spreads the attention of each word that is written over the words that were read."
        : `Every head spreads each word’s attention over ${known.is_causal ? "itself and the words before it" : "all words"}.`);
    sync();
  }

  function sync() {
    for (const [control, name] of [[view, "view"], [show, "show"], [specials, "specials"], [order, "order"]]) control.set(settings[name]);
    unit.set(known?.is_long ? "pieces" : settings.unit);
    heads.mark(settings.show === "rollout" ? null : { layer: settings.show === "all" ? null : settings.layer, head: settings.show === "head" ? settings.head : null });
    keep(toAddress(settings));
  }

  // The large picture: of another head, or of another text. Whether it is the latest.
  async function draw(isOther = false) {
    if (!known) return false;
    const mine = known;
    said("");
    try {
      if (!(await large.draw(mine, settings, isOther)) || mine !== known) return false;
      shown.classList.remove("busy");
      await list();
    } catch (error) {
      if (mine === known) said(error.message);
      return false;
    }
    return mine === known;
  }

  async function list() {
    if (!known) return;
    const mine = known, row = large.row(), word = large.word, given = { word: mine.queries[word], unit: large.unit(), isSquare: mine.is_square };
    if (row) {
      one.show({ ...given, entries: row.map((weight, place) => ({ name: mine.keys[place], place, weight })).sort((first, second) => second.weight - first.weight) });
      return;
    }
    const found = await listing(signal => ask("sentence", "row", { ...mine.body, ...aboutHead(settings), place: word, most: LISTED }, signal));
    if (found === undefined || mine !== known) return;
    const entries = found.places.map((place, at) => ({ name: mine.keys[place], place, weight: found.weights[at] }));
    one.show({ ...given, entries, rest: found.rest, entropy: found.entropy, count: mine.keys.length });
  }

  // All heads, small: at once, or for a long text a layer at a time.
  async function small() {
    const { body, is_long: isLong, n_layers: layers } = known, mine = known;
    try {
      await looking(async signal => {
        for (const layer of isLong ? Array.from({ length: layers }, (_, at) => at) : [null]) {
          const found = await ask("sentence", "heads", { ...body, ...(layer === null ? {} : { layer }) }, signal);
          if (signal.aborted || mine !== known) return;
          heads.show(found, mine);
        }
      });
    } catch (error) {
      fail(error);
      return;
    }
    if (mine !== known) return;
    ofHeads.classList.remove("busy");
    const { distances, entropies } = heads.stats;
    order.input.querySelector("[value=entropy]").disabled = !entropies;
    order.input.querySelector("[value=distance]").disabled = !distances;
    heads.order(settings.order);
    describe();
  }

  function describe() {
    const { distances, entropies } = heads.stats, { layer, head } = settings;
    const facts = [
      entropies?.[layer] ? `as spread as ${plain(Math.exp(entropies[layer][head]))} pieces of equal weight (entropy ${plain(entropies[layer][head])} nats)` : null, distances?.[layer] ? `${plain(distances[layer][head])} pieces away` : null,
    ].filter(each => each);
    headsNote.textContent = known.is_long ? "Of 24 queries, evenly spaced, the heaviest weights; the order by entropy or distance is for shorter texts."
      : [
        settings.order === "place" ? "Layers go down, heads across." : "",
        settings.show === "rollout" ? "Rollout: how much of each word reaches each through all layers, with what every layer passes on as it is." : "",
        settings.show === "head" && facts.length ? `Layer ${layer}, head ${head}: ${facts.join(", ")} on average, over all pieces.` : "Click one, or move with the arrow keys.",
      ].filter(each => each).join(" ");
  }

  // What the reader sets ----------------------------------------------------------------------------------------------
  function set(changed) {
    const before = { ...settings };
    Object.assign(settings, changed);
    const is = (...names) => names.some(each => before[each] !== settings[each]);
    const isOtherText = is("unit", "specials", "part");
    if (known && !isOtherText) settle(); // an address may name no head, or one that is not there
    else sync();
    if (isOtherText) read();
    else if (is("show", "layer", "head", "view")) draw();
    if (is("order")) heads.order(settings.order);
    if (known) describe();
  }

  function choose(row) {
    if (!known || row === large.word || row < 0 || row >= known.queries.length) return;
    large.choose(row).then(list).catch(fail);
  }

  function step(by) {
    choose(large.word + by);
  }

  function key(event) {
    if (!known || event.ctrlKey || event.metaKey || event.altKey) return;
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key], turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) step(by);
    else if (turn && settings.show === "head") {
      const at = settings.layer * known.n_heads + settings.head + turn;
      if (at >= 0 && at < known.n_layers * known.n_heads) set({ layer: Math.floor(at / known.n_heads), head: at % known.n_heads });
    } else return;
    event.preventDefault();
  }

  const offTheme = onTheme(heads.draw);
  sync();
  read();

  return {
    go(given) { set(fromAddress(given)); },
    leave() {
      for (const each of [reading, listing, looking, large, typed]) each.end();
      offTheme();
    },
  };
}
