"""Runs a program on a terminal of its own."""

import os
import pty
import subprocess


def on_terminal(arguments, term="xterm", cwd=None):
    """What `arguments` write to a terminal on stderr, and to a pipe on stdout."""
    main, other = pty.openpty()
    run = subprocess.Popen(arguments, cwd=cwd, stdout=subprocess.PIPE, stderr=other, stdin=subprocess.DEVNULL,
                           env={**os.environ, "TERM": term})  # fmt: skip
    os.close(other)
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
    return run.wait(timeout=300), out, text.decode()
