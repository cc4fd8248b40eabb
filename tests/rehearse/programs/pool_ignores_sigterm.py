"""Wrong: its workers ignore SIGTERM, and that is what the pool ends them with, so that it never leaves."""

import json
import multiprocessing
import os
import signal
import sys
import time

STEPS = int(os.environ.get("STEPS", "60"))


def square(number):
    time.sleep(0.05)
    return number * number


def main():
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    done = []
    if os.path.exists("state.json"):
        with open("state.json") as file:
            done = json.load(file)
    with multiprocessing.Pool(2, signal.signal, (signal.SIGTERM, signal.SIG_IGN)) as pool:
        for value in pool.imap(square, range(len(done), STEPS)):
            done.append(value)
            with open("state.tmp", "w") as file:
                json.dump(done, file)
            os.replace("state.tmp", "state.json")
            if told:
                sys.exit(75)
        pool.close()
        pool.join()
    with open("result.tmp", "w") as file:
        file.write(f"{sum(done)}\n")
    os.replace("result.tmp", "result.txt")


if __name__ == "__main__":
    main()
