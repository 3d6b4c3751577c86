"""Runs a program on a terminal of its own."""

import os
import pty
import signal
import subprocess
import threading
import time


def hold_back(run):
    """Lets a process run for 20 ms at a time, with pauses of 200 ms, in its first five seconds."""
    for _ in range(25):
        time.sleep(0.02)
        if run.poll() is not None:
            return
        run.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        run.send_signal(signal.SIGCONT)


def on_terminal(arguments, term="xterm", cwd=None, is_slow=False):
    """Returns the exit code of `arguments`, its stdout (a pipe), and its stderr (a terminal).
    `is_slow`: slows its first seconds down.
    """
    main, other = pty.openpty()
    run = subprocess.Popen(arguments, cwd=cwd, stdout=subprocess.PIPE, stderr=other, stdin=subprocess.DEVNULL,
                           env={**os.environ, "TERM": term})  # fmt: skip
    os.close(other)
    holder = threading.Thread(target=hold_back, args=(run,)) if is_slow else None
    if holder:
        holder.start()
    text = b""
    while True:
        try:
            part = os.read(main, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    out = run.stdout.read()
    run.stdout.close()
    os.close(main)
    if holder:
        holder.join()
    return run.wait(timeout=300), out, text.decode()
