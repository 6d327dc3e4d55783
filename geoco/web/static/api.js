// The server's addresses. Everything that goes wrong becomes a Problem with one sentence.

const SESSION = "geoco-session";
const PATIENCE = 4; // times that a busy server is asked again

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
  throw new Problem(toSentence(body.detail ?? `the server answered ${answer.status}`), answer.status);
}

function toSentence(text) {
  const whole = text[0].toUpperCase() + text.slice(1);
  return /[.!?]$/.test(whole) ? whole : `${whole}.`;
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

  async openFile(file, seed) {
    if (file.size > this.limits.upload_bytes) {
      const most = Math.floor(this.limits.upload_bytes / 2 ** 20);
      throw new Problem(`${file.name} is too large: at most ${most} MiB are read.`, 413);
    }
    if (/\.json$/i.test(file.name) || file.type === "application/json") {
      const headers = { "Content-Type": "application/json" };
      return this.#json("/imports", { method: "POST", headers, body: file });
    }
    const query = seed === undefined ? "" : `?seed=${seed}`;
    const headers = { "Content-Type": "application/octet-stream" };
    return this.#json(`/uploads${query}`, { method: "POST", headers, body: file });
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
