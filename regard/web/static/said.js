// What the page tells: in passing to who hears it, and what failed to everyone.
import { element } from "./elements.js";

const place = () => document.getElementById("said");
let clearing = null, speaking = null;

// For who hears the page: once things are still, not at every step on the way.
export function tell(label, node) {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    if (node) node.setAttribute("aria-label", label);
    else say(label);
  }, 300);
}

export function say(text) {
  clearTimeout(clearing);
  place().className = "said";
  place().replaceChildren(element("span", { class: "unseen" }, text));
}

export function fail(error) {
  if (error.name === "AbortError") return;
  clearTimeout(clearing);
  place().className = "said wrong";
  place().replaceChildren(
    element("span", {}, error.message),
    element("button", { type: "button", class: "quiet-button", onclick: clear, "aria-label": "Close the message" }, "×"),
  );
  clearing = setTimeout(clear, 12000);
}

export function clear() {
  place().className = "said";
  place().replaceChildren();
}
