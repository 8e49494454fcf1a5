"""Inside a sandbox without a network: a proxy on its own loopback that leads to the door, then the program.

Runs alone, on the standard library: `relay.py DOOR PROGRAM ...` becomes PROGRAM, whose `HTTPS_PROXY` is the relay.
"""

import os
import socket
import sys
import threading


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Everything that comes from one side goes to the other."""
    try:
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:  # one side is gone, so the other one goes as well
        for one in (source, sink):
            one.close()


def serve(listener: socket.socket, door: str) -> None:
    """Lead every connection to the door."""
    while True:
        caller, _ = listener.accept()
        way = socket.socket(socket.AF_UNIX)
        try:
            way.connect(door)
        except OSError:
            caller.close()
            continue
        for pair in ((caller, way), (way, caller)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def main() -> None:
    """Start the relay beside, and become the program."""
    door, *command = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        kept = listener.fileno()
        os.closerange(3, kept)  # the program's descriptors are its own: pipes, and the one for its result
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        serve(listener, door)
    proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    os.environ.update(HTTPS_PROXY=proxy, https_proxy=proxy)
    os.execvp(command[0], command)  # noqa: S606 - inside of the sandbox, this is the program


main()
