"""Wrong: SIGTERM cancels the main task, which takes that for its end and leaves with 0."""

import asyncio
import json
import os
import signal


async def main():
    task = asyncio.current_task()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    step, total = 0, 0
    if os.path.exists("state.json"):
        with open("state.json") as file:
            step, total = json.load(file)
    try:
        while step < 25:
            await asyncio.sleep(0.03)
            total, step = total + step * step, step + 1
            with open("state.tmp", "w") as file:
                json.dump([step, total], file)
            os.replace("state.tmp", "state.json")
    except asyncio.CancelledError:
        return
    with open("result.tmp", "w") as file:
        file.write(f"{total}\n")
    os.replace("result.tmp", "result.txt")


asyncio.run(main())
