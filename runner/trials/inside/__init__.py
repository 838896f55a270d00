"""The program within a trial sandbox: runs commands and moves files as the one at the other end of a stream asks.

Standard library only: it is put into the sandbox by itself, and run with `-I -S` as root of it. The stream is described
in `docs/protocol.md`. When the stream ends, so does this program, and with it the sandbox and all that runs in it.

Whatever commands do, it goes on: a command ends when its process has, whoever else still holds its output; what is not
read by the other end stays in the pipe, and its writer waits; a process that cannot be made is an answer.
"""
