// The lines of Python that compute what is drawn.
import { literal } from "../saving.js";

export function python({ about, known, text, settings }) {
  const lines = [];
  if (about.model) {
    lines.push(
      "from regard.integrations.transformers import TextModel", "",
      `model = TextModel.load(${literal(about.model)})  # the folder of --model`,
      `look = model.look(${[literal(text), ...(known.parts.length > 1 ? [literal(known.part)] : []), ...(settings.target ? [`target=${literal(settings.target)}`] : [])].join(", ")})`,
    );
  } else {
    lines.push("from regard.text import SentenceEncoder", "", `look = SentenceEncoder.load().look(${literal(text)})`);
  }
  if (known.is_long) {
    lines.push(
      `view = look.views[${settings.layer}]  # (1, heads, queries, keys), computed where it is read`,
      `weights = view.map(512, 512, pool="mean")[0, ${settings.head}]  # pooled; nothing is hidden or scaled`,
    );
  } else if (settings.show === "rollout") {
    lines.splice(1, 0, "from regard.analysis import rollout", "from regard.text import by_words");
    lines.push("pieces = look.pieces", "weights = rollout(look.views, range(len(pieces)))[0]  # among pieces, none hidden");
    if (!settings.pieces) lines.push("weights = by_words(weights, pieces.word_of)");
  } else {
    lines.splice(1, 0, "from regard.text.seen import choose_maps");
    if (settings.pieces) lines.push("look = look.by_pieces()");
    const named = [
      settings.layer === null ? null : `layer=${settings.layer}`, settings.head === null ? null : `head=${settings.head}`, settings.specials ? "specials=True" : null,
    ].filter(each => each);
    lines.push(`seen = choose_maps(${["look", ...named].join(", ")})`, "print(seen.notes)", "weights = seen.weights  # rows are queries, columns are keys");
  }
  return [...lines, "print(weights)", ""].join("\n");
}
