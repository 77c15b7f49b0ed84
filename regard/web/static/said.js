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

// Beside a failure, which stays until it has been read.
export function say(text) {
  const heard = place().querySelector(".unseen") ?? element("span", { class: "unseen" });
  heard.textContent = text;
  place().append(heard);
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
