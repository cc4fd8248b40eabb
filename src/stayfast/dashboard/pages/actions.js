// The few things that can be done: asked twice, sent with the token in a header, answered in words.
const dialog = document.getElementById("ask");
const [title, text, label, trouble] = ["ask-title", "ask-text", "ask-token", "ask-trouble"].map((id) => document.getElementById(id));
const input = label.querySelector("input");
const yes = dialog.querySelector("button.main");
let token = "";  // in memory alone: gone with the page
let current = null;

export function perform(action) {
  current = action;
  title.textContent = action.title;
  text.textContent = action.text || "";
  yes.textContent = action.verb;
  label.hidden = Boolean(token);
  trouble.hidden = true;
  input.value = "";
  dialog.showModal();
  (token ? yes : input).focus();
}

async function send() {
  yes.disabled = true;
  try {
    const given = token || input.value.trim();
    const answer = await fetch(current.path, { method: "POST", headers: { "content-type": "application/json", "x-stayfast-token": given }, body: JSON.stringify(current.body) });
    if (!answer.ok) {
      if (answer.status === 403) token = "";
      throw new Error((await answer.text()).trim());
    }
    token = given;
    const told = await answer.json();
    dialog.close();
    const news = document.getElementById("news");
    if (current.done) news.textContent = current.done(told);
  } catch (error) {
    trouble.textContent = error.message;
    trouble.hidden = false;
    label.hidden = Boolean(token);
    if (!token) input.focus();
  } finally {
    yes.disabled = false;
  }
}

yes.addEventListener("click", send);
input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); send(); } });
