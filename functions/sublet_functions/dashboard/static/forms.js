/** Forms in dialogs. A refused one stays open: the reason is shown beside its field, and what was typed is kept. */
import { ApiError } from "./api.js";
import { h } from "./dom.js";
import { button, dialog } from "./widgets.js";

/** @typedef {import("./dom.js").Child} Child */

/**
 * A refusal by the page itself.
 * @param {string} text
 * @param {string} [name] of the field
 */
export const refusal = (text, name) => new ApiError(422, "invalid", text, name ? [{ pointer: `#/${name}`, detail: text }] : []);

/**
 * Show a form until its order succeeds or the user leaves it.
 * @param {string} title
 * @param {string} label of the button that gives the order
 * @param {(data: FormData) => Promise<any>} give throws ApiError
 * @param {...Child} children
 * @returns {Promise<any>} what `give` returned; null if the user left
 */
export function form(title, label, give, ...children) {
  return dialog(title, (close) => {
    const note = h("p", { class: "note error", role: "alert", hidden: true });
    const order = /** @type {HTMLButtonElement} */ (h("button", { class: "primary" }, label));
    const submit = async (/** @type {Event} */ event) => {
      event.preventDefault();
      const element = /** @type {HTMLFormElement} */ (event.currentTarget);
      for (const one of element.querySelectorAll(".refusal")) one.remove();
      for (const one of element.querySelectorAll("[aria-invalid]")) one.removeAttribute("aria-invalid");
      note.hidden = order.disabled = true;
      try {
        close((await give(new FormData(element))) ?? {});
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        show(error, element, note);
      } finally {
        order.disabled = false;
      }
    };
    return h("form", { onSubmit: submit }, children, note, h("div", { class: "row end" }, button("Keep as it is", () => close(null), { class: "quiet" }), order));
  });
}

/**
 * @param {ApiError} error
 * @param {HTMLFormElement} element
 * @param {HTMLElement} note for what belongs to no field
 */
function show({ message, errors }, element, note) {
  /** @type {HTMLElement | null} */
  let first = null;
  const others = [];
  const named = { pointer: `#/${/^\w+/.exec(message)?.[0]}`, detail: message }; // a refusal by Redis begins with the field
  for (const { pointer = "", detail } of errors.length ? errors : [named]) {
    const path = pointer.slice(2).split("/");
    path.push(/^(?:setting )?(\w+)=/.exec(detail)?.[1] ?? "");
    const input = path.map((name) => element.elements.namedItem(name)).find((one) => one instanceof HTMLElement);
    if (!(input instanceof HTMLElement)) {
      others.push(detail);
      continue;
    }
    input.setAttribute("aria-invalid", "true");
    input.closest("label")?.append(h("small", { class: "refusal", role: "alert" }, detail));
    first ??= input;
  }
  if (!first || others.length) {
    note.replaceChildren(h("span", null, others.join("; ") || message));
    note.hidden = false;
  }
  first?.focus();
}
