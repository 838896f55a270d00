"""Programs that each run the same no-op groups in one way, and print how fast that went. Run with `-m`.

Each is run by the interpreter of a venv that holds what it needs, with nothing of this repository on its path but the
package `scripts`. Arguments are pairs `<groups in flight>:<groups>`; the last line of output is one JSON object.
"""
