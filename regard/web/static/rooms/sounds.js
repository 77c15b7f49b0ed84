// The room of sounds: a word, how it is said, and which letters each sound attended to as it was written.
import { button, choice, panel, slider } from "../controls.js";
import { element } from "../elements.js";
import { onTheme, percent } from "../numbers.js";
import { literal, saving } from "../saving.js";
import { ask, paced } from "../server.js";
import { fail, tell } from "../said.js";
import { bars, legendOf } from "../weights.js";
import { endName, sentenceOf, told, wordDrawing } from "./sounds-drawing.js";

const EXAMPLES = ["attention", "cough", "though", "knight", "pizza", "colonel", "rhythm", "naïve", "queue", "zzz"];
const FIRST = { word: "attention", place: 4 };
const BEAT = 1100; // milliseconds for each sound that is played
const PAUSE = 250; // milliseconds without a key until a word is said

let kept = null; // a word that was typed: while the page is open, and nowhere else

// “*sh*e” as in the list of sounds: the letters that are meant stand out.
const heardAs = heard => heard.split("*").map((part, place) => (place % 2 ? element("b", {}, part) : part));

export function mount(root, { state, keep }) {
  const held = { said: null, chosen: 0, show: "whole", example: FIRST.word, playing: null };
  let wanted = FIRST.place, typing = null;

  const input = element("input", {
    type: "text", id: "word", name: "word", value: "", autocomplete: "off", autocapitalize: "none", spellcheck: "false",
  });
  const examples = element("div", { class: "examples", role: "group", "aria-label": "Words to begin with" },
    EXAMPLES.map(word => button(word, () => begin(word, 0), { "data-word": word })));
  const wrong = element("p", { class: "notice wrong-word", role: "status", hidden: true });
  const place = element("div", {
    class: "scroll alignment", tabindex: "0", role: "group", "aria-label": "Sounds above letters. Arrow keys choose a sound", onkeydown: moved,
  });
  const caption = element("figcaption");
  const player = element("div", { class: "player" });
  const now = element("div", { class: "now" }), considered = element("div"), whole = element("div");
  const saved = saving("sounds", {
    picture: () => place.querySelector("svg"),
    rows: () => table(held.said),
    data: () => held.said,
    python: () => python(held.said),
  });
  const mode = choice({
    label: "Show", options: [["whole", "whole word"], ["written", "as it is written"]], value: "whole", name: "show",
    onchange: each => { held.show = each; draw(); keepState(); },
  });
  const shown = element("div", { class: "word-said" }, element("figure", {}, place, caption), player, saved);
  root.append(
    element("div", { class: "stage" },
      element("h1", {}, "How a word is said"),
      element("p", { class: "lead" }, "A trained model writes a word’s sounds one after another. Before each, it attends to the letters: every sound is a query, every letter a key."),
      element("form", { class: "word", onsubmit: event => { event.preventDefault(); begin(input.value.trim(), 0); } },
        element("label", { for: "word" }, "An English word"), input, element("button", { type: "submit", class: "primary" }, "Say")),
      examples, wrong, shown),
    element("aside", { class: "side", "aria-label": "One sound" }, now, considered, whole));
  input.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => begin(input.value.trim(), 0), PAUSE);
  });

  const say = paced(async word => {
    if (word === "") {
      refuse("Type an English word, or choose one of those above.");
      return;
    }
    shown.classList.add("busy");
    try {
      const said = await ask("sounds", "say", { word });
      if (input.value.trim() === word) arrive(said);
    } catch (error) {
      if (error.status === 0 || error.status >= 500) fail(error);
      else if (input.value.trim() === word) refuse(error.message);
    } finally {
      shown.classList.remove("busy");
    }
  });

  function begin(word, at) {
    clearTimeout(typing);
    stop();
    if (input.value.trim() !== word) input.value = word;
    held.example = EXAMPLES.includes(word) ? word : null;
    kept = held.example ? null : word;
    wanted = at;
    for (const each of examples.children) each.setAttribute("aria-pressed", String(each.dataset.word === word));
    say(word);
  }

  function refuse(message) {
    wrong.textContent = message;
    wrong.hidden = false;
    shown.hidden = true;
    for (const each of [now, considered, whole]) each.hidden = true;
    held.said = null;
    keepState();
  }

  function arrive(said) {
    if (said.sounds.length === 0) {
      refuse(`The model says nothing for “${said.letters}”.`);
      return;
    }
    wrong.hidden = true;
    shown.hidden = false;
    for (const each of [now, considered, whole]) each.hidden = false;
    held.said = said;
    held.chosen = Math.min(wanted, said.sounds.length - 1);
    makePlayer();
    draw();
    keepState();
  }

  let step = null, play = null;
  function makePlayer() {
    const last = held.said.sounds.length - 1;
    step = slider({
      label: "Sound", low: 0, high: last, value: held.chosen, steps: Math.max(last, 1), name: "sound",
      say: each => `${held.said.sounds[Math.round(each)].name}, ${Math.round(each) + 1} of ${last + 1}`,
      onchange: each => { stop(); choose(Math.round(each)); },
    });
    play = button("Play", () => (held.playing === null ? start() : stop()), { class: "primary", title: "Write the word sound by sound" });
    player.replaceChildren(
      button("‹", () => { stop(); choose(held.chosen - 1); }, { "aria-label": "Sound before" }), play,
      button("›", () => { stop(); choose(held.chosen + 1); }, { "aria-label": "Next sound" }), step.root, mode.root);
  }

  function choose(at) {
    if (held.said === null) return;
    held.chosen = Math.min(Math.max(at, 0), held.said.sounds.length - 1);
    step.set(held.chosen);
    draw();
    keepState();
    tell(`${sentenceOf(held.said, held.chosen)}.`);
  }

  function start() {
    held.show = "written";
    mode.set("written");
    play.textContent = "Pause";
    if (held.chosen === held.said.sounds.length - 1) choose(0);
    else draw();
    held.playing = setInterval(() => {
      choose(held.chosen + 1);
      if (held.chosen === held.said.sounds.length - 1) stop();
    }, BEAT);
  }

  function stop() {
    if (held.playing === null) return;
    clearInterval(held.playing);
    held.playing = null;
    play.textContent = "Play";
  }

  function moved(event) {
    const moves = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -1e3, End: 1e3 };
    if (!(event.key in moves) || held.said === null) return;
    event.preventDefault();
    stop();
    choose(held.chosen + moves[event.key]);
  }

  function draw() {
    const { said, chosen } = held;
    if (said === null) return;
    const upto = held.show === "whole" ? said.sounds.length : chosen + 1;
    const width = Math.max(place.clientWidth || 640, 240);
    const { drawn, largest } = wordDrawing(said, { width, chosen, upto, onchoose: at => { stop(); choose(at); } });
    place.replaceChildren(drawn);
    caption.replaceChildren(`${sentenceOf(said, chosen)}. Rows are sounds (queries), columns are letters (keys), numbers are percents; ⏎ is the ${endName}.`);
    drawNow(said, chosen, upto);
    whole.replaceChildren(panel("The word",
      element("p", { class: "answer-line" }, said.sounds.slice(0, upto).map(({ name }) => name).join(" ")),
      element("p", { class: "caption" },
        said.letters === said.word.toLowerCase().trim() ? null : `Read as ${said.letters}. `,
        `Probability ${(100 * said.certainty).toFixed(0)}% per sound; the model was trained with label smoothing, where 90% is confident.`),
      element("figure", {}, legendOf(largest))));
    saved.refresh();
  }

  function drawNow(said, chosen, upto) {
    const sound = said.sounds[chosen], names = told([...said.letters]);
    const entries = [...sound.weights.map((weight, at) => ({ name: names[at], weight })), { name: endName, weight: sound.end }];
    const kept = entries.length <= 14 ? entries : entries.filter(({ weight }) => weight >= 0.005);
    now.replaceChildren(
      element("p", { class: "sound-name" }, element("b", {}, sound.name), element("span", {}, " as in ", heardAs(sound.heard))),
      panel("What it attended to", element("figure", {}, bars(kept, { width: 312, label: `what ${sound.name} attended to` }))));
    const others = sound.considered.map(({ name, share }) => ({ name: name || endName, weight: share }));
    const written = sound.considered.findIndex(({ name }) => name === sound.name);
    considered.replaceChildren(panel("What might have stood here",
      element("figure", {}, bars(others, { width: 312, label: "probabilities of the likeliest sounds", chosen: written }),
        element("figcaption", {}, upto === 1 ? "The model’s probabilities, before anything is written." : `The model’s probabilities, after ${said.sounds.slice(0, chosen).map(({ name }) => name).join(" ") || "nothing"}.`))));
  }

  // The address says which example is shown: never a word of the reader's own.
  function keepState() {
    keep({ word: held.example, sound: held.said ? held.chosen + 1 : null, show: held.show === "whole" ? null : held.show });
  }

  function go(given) {
    held.show = given.show === "written" ? "written" : "whole";
    mode.set(held.show);
    const example = EXAMPLES.includes(given.word) ? given.word : kept ?? FIRST.word;
    const at = Number.parseInt(given.sound, 10) - 1;
    begin(example, Number.isInteger(at) ? Math.max(at, 0) : example === FIRST.word ? FIRST.place : 0);
  }

  const sized = new ResizeObserver(() => draw());
  sized.observe(shown);
  const untheme = onTheme(draw);
  go(state);
  return {
    go,
    leave() {
      stop();
      clearTimeout(typing);
      sized.disconnect();
      untheme();
    },
  };
}

function table(said) {
  const head = ["sound", ...said.letters, endName];
  return [head, ...said.sounds.map(sound => [sound.name, ...sound.weights, sound.end])];
}

const python = said => `from regard.text import Pronouncer

said = Pronouncer.load().say(${literal(said.word)})[0]
print(said)
for sound, weights in zip(said.phonemes, said.alignment.tolist()):
    print(sound, *(f"{letter} {weight:.1%}" for letter, weight in zip(said.letters, weights)))
`;
