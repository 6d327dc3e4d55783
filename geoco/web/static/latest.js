// Requests come faster than answers: one is under way, only the newest waits, the rest are dropped.

export class Latest {
  #work;
  #show;
  #fail;
  #running = false;
  #waiting = null;
  #round = 0;

  constructor(work, show, fail) {
    this.#work = work;
    this.#show = show;
    this.#fail = fail;
  }

  push(value) {
    this.#waiting = { value };
    if (!this.#running) this.#run();
  }

  // Whatever is still under way is not shown any more.
  cancel() {
    this.#round += 1;
    this.#waiting = null;
  }

  async #run() {
    this.#running = true;
    while (this.#waiting) {
      const { value } = this.#waiting;
      this.#waiting = null;
      const round = this.#round;
      try {
        const answer = await this.#work(value);
        if (round === this.#round) this.#show(answer);
      } catch (problem) {
        if (round === this.#round) this.#fail(problem);
      }
    }
    this.#running = false;
  }
}
