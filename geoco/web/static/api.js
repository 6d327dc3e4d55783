// The server's addresses. Everything that goes wrong becomes a Problem with one sentence.

const SESSION = "geoco-session";
const PATIENCE = 4; // times that a busy server is asked again

import { rephrase } from "./messages.js";

export class Problem extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

async function sendRequest(path, options = {}, patience = PATIENCE) {
  let answer;
  try {
    answer = await fetch(`/api${path}`, options);
  } catch {
    throw new Problem("The server does not answer: is it still running?", 0);
  }
  if (answer.status === 503 && patience > 0) {
    await pause(1000 * Number(answer.headers.get("Retry-After") ?? 1));
    return sendRequest(path, options, patience - 1);
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw toProblem(body.detail, answer.status);
}

const toProblem = (detail, status) =>
  new Problem(rephrase(detail ?? `the server answered ${status}`), status);

// A file on its way: `report(share)` is told how much of it is sent. `fetch` cannot say that.
async function sendFile(path, type, body, report, patience = PATIENCE) {
  const { status, text, wait } = await new Promise((done, fail) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/api${path}`);
    request.setRequestHeader("Content-Type", type);
    request.upload.addEventListener("progress", ({ loaded, total }) => report(total ? loaded / total : 1));
    request.upload.addEventListener("load", () => report(1));
    request.addEventListener("error", () =>
      fail(new Problem("The server does not answer: is it still running?", 0)),
    );
    request.addEventListener("load", () =>
      done({
        status: request.status,
        text: request.responseText,
        wait: Number(request.getResponseHeader("Retry-After") ?? 1),
      }),
    );
    request.send(body);
  });
  if (status === 503 && patience > 0) {
    await pause(1000 * wait);
    return sendFile(path, type, body, report, patience - 1);
  }
  let answer = {};
  try {
    answer = JSON.parse(text);
  } catch {
    // what is no JSON has no sentence either
  }
  if (status < 200 || status >= 300) throw toProblem(answer.detail, status);
  return answer;
}

const json = (value) => ({
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(value),
});

export class Server {
  // A page that is loaded again goes on with its session.
  static async begin() {
    const old = sessionStorage.getItem(SESSION);
    let session = null;
    if (old) {
      session = await sendRequest(`/sessions/${encodeURIComponent(old)}`)
        .then((answer) => answer.json())
        .catch(() => null);
    }
    session ??= await sendRequest("/sessions", { method: "POST" }).then((answer) => answer.json());
    sessionStorage.setItem(SESSION, session.id);
    return new Server(session);
  }

  constructor({ id, model, limits }) {
    this.id = id;
    this.model = model;
    this.limits = limits;
    this.root = `/sessions/${id}`;
  }

  async #json(path, options, patience) {
    return (await sendRequest(this.root + path, options, patience)).json();
  }

  samples() {
    return sendRequest("/samples").then((answer) => answer.json());
  }

  samplePicture(id) {
    return `/api/samples/${encodeURIComponent(id)}/picture.png`;
  }

  openSample(sample, seed) {
    return this.#json("/scenes", json({ sample, ...(seed === undefined ? {} : { seed }) }));
  }

  async openFile(file, seed, report = () => {}) {
    if (file.size > this.limits.upload_bytes) {
      const most = Math.floor(this.limits.upload_bytes / 2 ** 20);
      throw new Problem(`${file.name} is too large: at most ${most} MiB are read.`, 413);
    }
    if (/\.json$/i.test(file.name) || file.type === "application/json") {
      return sendFile(`${this.root}/imports`, "application/json", file, report);
    }
    const query = seed === undefined ? "" : `?seed=${seed}`;
    return sendFile(`${this.root}/uploads${query}`, "application/octet-stream", file, report);
  }

  // What a state began with, encoded once more from other places.
  async openAgain(state, seed) {
    const list = await (await this.exported(state, "edits.json")).json();
    return this.#json("/imports", json({ ...list, seed }));
  }

  state(id, frame) {
    return this.#json(`/states/${id}?frame=${frame}`);
  }

  edit(state, edit, frame) {
    return this.#json(`/states/${state}/edits?frame=${frame}`, json(edit));
  }

  preview(state, edit, frame) {
    return this.#json(`/states/${state}/previews?frame=${frame}`, json(edit), 1);
  }

  frames(state) {
    return this.#json(`/states/${state}/frames`).then((answer) => answer.frames);
  }

  exportAddress(state, file, query = {}) {
    const search = new URLSearchParams(query).toString();
    return `/api${this.root}/states/${state}/export/${file}${search && `?${search}`}`;
  }

  async exported(state, file, query) {
    return sendRequest(this.exportAddress(state, file, query).slice("/api".length));
  }
}
