// The operator's page. No library, no build, no other host. It shows what the gateway's feed says and how old that is.
"use strict";

const STAGES = ["degraded", "shadow", "canary", "ramp_20", "ramp_50", "serving"];
const COLOURS = { primary: "#2f7d4f", canary: "#6fa82e", previous: "#4a78b5", gbdt: "#c98a1f", rules: "#c96a2b" };
const OTHER = "#7a5ea8", STALE_MS = 5000, RETRY_MS = [500, 1000, 2000, 5000];
const byId = (id) => document.getElementById(id);
let feed = null, heardAt = 0, failures = 0;

// What the page was told -----------------------------------------------------------------------------------------------

const needsToken = document.body.dataset.token === "needed";

// Server-sent events, by fetch: an EventSource can't show a token. Where one is needed nothing is asked without it.
let listening = false;
async function listen() {
  if (listening) return;
  if (needsToken && !token()) { if (!byId("ask").open) askToken(); return; }
  listening = true;
  const answer = await call("v1/console/live", { cache: "no-store" });
  if (answer.ok) await answer.body.pipeThrough(new TextDecoderStream()).pipeTo(new WritableStream(new Messages())).catch(() => {});
  listening = false;
  if (answer.status === 401) { sessionStorage.removeItem("token"); listen(); return; }
  setTimeout(listen, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]);
  failures += 1;
}

class Messages {
  held = "";
  write(text) {
    const pieces = (this.held + text).split("\n\n");
    this.held = pieces.pop();
    for (const piece of pieces) {
      feed = JSON.parse(piece.slice("data: ".length));
      heardAt = Date.now();
      failures = 0;
      show();
    }
  }
}

function showAge() {
  const age = Date.now() - heardAt, old = age > STALE_MS, words = byId("fresh");
  words.textContent = heardAt === 0 ? (needsToken && !token() ? "a token is needed to look" : "connecting") : old ? `nothing heard for ${Math.round(age / 1000)} s: what you see is old` : "live";
  words.classList.toggle("old", old);
  document.body.classList.toggle("stale", old);
}

function show() {
  showAge();
  const now = feed.now, glance = byId("glance");
  glance.textContent = plain(now.glance);
  glance.className = `glance ${now.mood}`;
  showHappening(feed.happening);
  byId("why").textContent = plain(now.why);
  byId("stages").replaceChildren(...STAGES.map((stage) => stageItem(stage, now.stage)));
  chart(feed.history);
  windowChart(feed.history, feed.window);
  fill("arms", ["what", "subject", "stand-in"], feed.arms);
  fill("incidents", ["incident", "began", "took", "stage", "replaced", "why"], feed.incidents.map((one) =>
    [one.name, when(one.began_s), one.took, one.stage, one.replaced, one.why]), "none yet");
  fill("runs", ["run", "state", "batches", "loss", "refused", "restarts", "last word"], feed.runs, "none in this home");
}

let shown = "";
// Only what has changed is made anew, and a link that had the focus keeps it: somebody may be about to follow it.
function showHappening(happening) {
  const said = JSON.stringify(happening);
  if (said === shown) return;
  shown = said;
  const focused = document.activeElement?.dataset?.incident;
  byId("happening").replaceChildren(...happening.map((one) => happeningItem(one)));
  if (focused) byId("happening").querySelector(`[data-incident="${CSS.escape(focused)}"]`)?.focus();
}

// The four facts of an incident that goes on, and where the runbook has more.
function happeningItem(one) {
  const made = document.createElement("article"), what = document.createElement("h3"), facts = document.createElement("dl");
  made.className = one.section === "FailsoftDegraded" ? "incident" : "incident aside";
  what.textContent = plain(one.what);
  const more = document.createElement("a");
  more.href = `console/runbook#${one.section.toLowerCase()}`;
  more.textContent = `Runbook: ${one.section}`;
  more.dataset.incident = one.name;
  for (const [name, ...values] of [
    ["since", `${when(one.began_s, ZONE)}, for ${lasted(one.lasted_s)} (${plain(one.name)})`],
    ["seen", plain(one.why)],
    ...(one.release ? [["release", cameAs(one.release)]] : []),
    ["who saw it", plain(one.saw)],
    ["what to press", `${plain(one.press)} `, more],
  ]) {
    const term = document.createElement("dt"), said = document.createElement("dd");
    term.textContent = name;
    said.append(...values);
    facts.append(term, said);
  }
  made.append(what, facts);
  return made;
}

// Whether it is new decides what to press.
const cameAs = (release) => `came ${release.is_cut ? "at least " : ""}${lasted(release.before_s)} before, ${when(release.came_s, ZONE)}: ${plain(release.why)}`;

const lasted = (seconds) => seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;

function stageItem(stage, current) {
  const item = document.createElement("li");
  item.textContent = stage;
  if (stage === current) item.setAttribute("aria-current", "step");
  return item;
}

// Signs that would not show, or turn the words around, in their code.
const plain = (words) => String(words).replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu, (sign) => `\\u${sign.codePointAt(0).toString(16).padStart(4, "0")}`);
const ZONE = { timeZoneName: "short" };  // two people who compare notes may sit in different ones
const when = (seconds, how = {}) => new Date(seconds * 1000).toLocaleString(undefined, how);

function fill(id, columns, rows, nothing = "nothing") {
  const head = document.createElement("tr");
  head.append(...columns.map((column) => cell("th", column)));
  const body = rows.length ? rows.map((row) => line(row)) : [line([nothing])];
  if (!rows.length) body[0].firstChild.colSpan = columns.length;
  byId(id).replaceChildren(head, ...body);
}

function line(row) {
  const made = document.createElement("tr");
  made.append(...row.map((value) => cell("td", value)));
  return made;
}

function cell(kind, value) {
  const made = document.createElement(kind);
  made.textContent = plain(value);
  if (kind === "th") made.scope = "col";
  return made;
}

// The chart: stacked answers a second ----------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg", LEFT = 44, RIGHT = 890, TOP = 8, BOTTOM = 196;

function draw(kind, attributes, text = "") {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

// Where incidents lie in the last minutes.
function bands(bottom) {
  const start = feed.at_s - feed.history_s, place = (at) => LEFT + Math.min(1, Math.max(0, (at - start) / feed.history_s)) * (RIGHT - LEFT);
  return feed.incidents.filter((one) => (one.ended_s ?? feed.at_s) > start).map((one) => {
    const from = place(one.began_s), band = draw("rect", { x: from, y: TOP, width: Math.max(2, place(one.ended_s ?? feed.at_s) - from), height: bottom - TOP, class: "band" });
    band.append(draw("title", {}, plain(`${one.name}: ${one.why}`)));
    return band;
  });
}

// The share of bad answers over time, and the limit at which this gateway's window trips.
function windowChart(history, now) {
  const bottom = 96, highest = Math.max(0.01, 2 * (now.limit ?? 0), ...history.map((one) => one.bad ?? 0));
  const wide = (RIGHT - LEFT) / Math.max(1, history.length), y = (share) => bottom - (share / highest) * (bottom - TOP);
  const parts = bands(bottom);
  history.forEach((one, place) => {
    if (one.bad === null) return;
    parts.push(draw("rect", { x: LEFT + place * wide, y: Math.min(bottom - 1, y(one.bad)), width: wide + 0.3, height: Math.max(1, bottom - y(one.bad)), class: "bad" }));
  });
  if (now.limit !== null) parts.push(draw("line", { x1: LEFT, x2: RIGHT, y1: y(now.limit), y2: y(now.limit), class: "limit" }));
  parts.push(draw("text", { x: LEFT - 6, y: TOP + 10, "text-anchor": "end" }, `${Math.round(highest * 100)} %`));
  parts.push(draw("text", { x: LEFT - 6, y: bottom, "text-anchor": "end" }, "0"));
  parts.push(draw("text", { x: LEFT, y: 114 }, `${Math.round(feed.history_s / 60)} minutes ago`));
  parts.push(draw("text", { x: RIGHT, y: 114, "text-anchor": "end" }, "now"));
  byId("window").replaceChildren(...parts);
  const limit = now.limit === null ? "" : `; it trips at ${Math.round(now.limit * 100)} %, once chance is ruled out (the dashed line)`;
  byId("window-words").textContent = now.total === null ? "" : `This gateway's window holds ${now.bad} bad of ${now.total}${limit}. Of all gateways above: weak, late and failed, where the model was asked.`;
}

function chart(history) {
  const sources = [...new Set([...Object.keys(COLOURS), ...history.flatMap((one) => Object.keys(one.rates))])]
    .filter((source) => history.some((one) => one.rates[source]));
  const highest = Math.max(1, ...history.map((one) => Object.values(one.rates).reduce((a, b) => a + b, 0)));
  const wide = (RIGHT - LEFT) / Math.max(1, history.length), parts = bands(BOTTOM);
  history.forEach((one, place) => {
    let below = 0;
    for (const source of sources) {
      const high = ((one.rates[source] || 0) / highest) * (BOTTOM - TOP);
      if (high > 0) parts.push(draw("rect", { x: LEFT + place * wide, y: BOTTOM - below - high, width: wide + 0.3, height: high, fill: COLOURS[source] || OTHER }));
      below += high;
    }
  });
  parts.push(draw("text", { x: LEFT - 6, y: TOP + 10, "text-anchor": "end" }, highest.toPrecision(2)));
  parts.push(draw("text", { x: LEFT - 6, y: BOTTOM, "text-anchor": "end" }, "0"));
  parts.push(draw("text", { x: LEFT, y: 214 }, `${Math.round(feed.history_s / 60)} minutes ago`));
  parts.push(draw("text", { x: RIGHT, y: 214, "text-anchor": "end" }, "now"));
  byId("chart").replaceChildren(...parts);
  byId("legend").replaceChildren(...sources.map((source) => key(source)));
  if (!sources.length) byId("legend").textContent = "no answers yet";
}

function key(source) {
  const made = document.createElement("span"), colour = document.createElement("i");
  colour.style.background = COLOURS[source] || OTHER;
  made.append(colour, source);
  return made;
}

// What an operator may do ----------------------------------------------------------------------------------------------

const token = () => sessionStorage.getItem("token") || "";
const WHY = { name: "why", label: "why (kept in the ledger)", value: "", required: true };
// A time that is no number must not become an order without end.
const MINUTES = { name: "minutes", label: "for how many minutes (empty: until you let it return)", value: "", pattern: "[0-9]+([.][0-9]+)?", inputMode: "decimal", title: "a number of minutes, like 30" };
// Orders are about the release, and the stage, that were shown when the question was asked, whatever has come into service since.
const ORDERS = {
  degrade: { title: "Hold the model back for everyone?", text: "The stand-in answers until you let the model return, or until the time is over.",
    fields: [WHY, MINUTES],
    send: (given) => ["v1/degrade", { why: given.why, for_s: given.minutes ? Number(given.minutes) * 60 : null }] },
  restore: { title: "Let the model return?", text: "It returns through shadow, canary and ramp, and falls again if it is ill.",
    fields: [WHY], send: (given) => ["v1/restore", { why: given.why }] },
  promote: { title: "Promote a release?", text: "It begins in shadow; the present one goes on serving beside it.",
    fields: [{ name: "release", label: "release", value: "", required: true }],
    send: (given) => [`v1/releases/${encodeURIComponent(given.release)}/propose`, null] },
  hold: { title: "Hold it in this stage?", isOfRelease: true, text: "It stays there until you let it go on; it still falls when it is ill.",
    fields: [WHY], send: (given, release) => [`v1/releases/${encodeURIComponent(release)}/hold`, { why: given.why }] },
  resume: { title: "Let it go on by itself?", isOfRelease: true, text: "It leaves its stage when the evidence allows.",
    fields: [WHY], send: (given, release) => [`v1/releases/${encodeURIComponent(release)}/resume`, { why: given.why }] },
  advance: { title: "Let it into the next stage?", isOfRelease: true, text: "Only once it has passed its stage: where it is held, or goes by hand.",
    fields: [WHY], send: (given, release, stage) => [`v1/releases/${encodeURIComponent(release)}/advance`, { why: given.why, from_stage: stage }] },
  abort: { title: "Give the release up?", isOfRelease: true, text: "The older release, still warm, serves at once.",
    fields: [WHY], send: (given, release) => [`v1/releases/${encodeURIComponent(release)}/abort`, { why: given.why }] },
};

async function ask(title, text, fields, carryOut) {
  byId("ask-title").textContent = title;
  byId("ask-text").textContent = text;
  byId("ask-error").textContent = "";
  byId("ask-fields").replaceChildren(...fields.map((field) => fieldOf(field)));
  const dialog = byId("ask"), yes = byId("ask-yes");
  yes.onclick = async (event) => {
    event.preventDefault();
    const form = dialog.querySelector("form");
    if (!form.reportValidity()) return;
    yes.disabled = true;
    const given = Object.fromEntries(fields.map((field) => [field.name, byId(`ask-${field.name}`).value.trim()]));
    const trouble = await carryOut(given).finally(() => { yes.disabled = false; });
    byId("ask-error").textContent = trouble;
    if (!trouble) dialog.close();
  };
  dialog.showModal();
}

function fieldOf(field) {
  const label = document.createElement("label"), input = document.createElement("input");
  Object.assign(input, { id: `ask-${field.name}`, value: field.value, required: Boolean(field.required), type: field.type || "text", autocomplete: "off" });
  if (field.pattern) Object.assign(input, { pattern: field.pattern, inputMode: field.inputMode, title: field.title });
  label.append(field.label, input);
  return label;
}

async function order(name) {
  if (!token()) { askToken(() => order(name)); return; }
  const known = ORDERS[name], release = feed?.now.release || "no release", stage = feed?.now.stage || "";
  await ask(known.title, known.isOfRelease ? `${plain(release)}: ${known.text}` : known.text, known.fields, async (given) => {
    const [route, body] = known.send(given, release, stage);
    const answer = await call(route, { method: "POST", body: body === null ? undefined : JSON.stringify({ ...body, by: "console" }) });
    return answer.ok ? "" : await saidBy(answer);
  });
}

function askToken(next) {
  const whose = needsToken ? "From the file operator-token in the home folder, or, only to look, viewer-token." : "From the file operator-token in the home folder.";
  ask(needsToken ? "Token" : "Operator token", `${whose} It is kept until this tab closes.`,
    [{ name: "token", label: "token", value: "", required: true, type: "password" }], async (given) => {
      sessionStorage.setItem("token", given.token);
      const answer = next || !needsToken ? await search() : await call("v1/console/reader");
      if (answer.ok) {
        if (next) setTimeout(next);
        listen();
        return "";
      }
      sessionStorage.removeItem("token");
      return await saidBy(answer);
    });
}

async function call(route, options = {}) {
  const headers = { "Content-Type": "application/json", ...(token() ? { Authorization: `Bearer ${token()}` } : {}) };
  try { return await fetch(route, { ...options, headers }); } catch { return new Response("no gateway answers", { status: 503 }); }
}

async function saidBy(answer) {
  const text = await answer.text();
  try { return JSON.parse(text).detail || text; } catch { return text; }
}

// The ledger -----------------------------------------------------------------------------------------------------------

async function search() {
  const asked = new URLSearchParams({ text: byId("words").value, side: byId("side").value });
  const answer = await call(`v1/console/events?${asked}`);
  if (answer.ok) {
    const { events } = await answer.clone().json();
    fill("ledger", ["when", "side", "what", "who", "why"], events.map((one) => [when(one.at_s), one.side, one.kind, one.subject, one.why]), "nothing found");
  }
  return answer;
}

byId("search").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await search();
  if (answer.status === 401) askToken(search);
});
byId("ask-no").addEventListener("click", () => byId("ask").close());
byId("token-button").addEventListener("click", () => askToken());
for (const button of document.querySelectorAll("[data-order]")) button.addEventListener("click", () => order(button.dataset.order));
fill("ledger", ["when", "side", "what", "who", "why"], [], "the ledger is shown to operators: search, and give the token");
setInterval(showAge, 1000);
listen();
