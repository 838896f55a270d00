"""What is wrong with an environment before it is packed: all of it at once, each with its place and what to change.

finding      what is found, and the report
places       which line of a file binds a name
travel       what goes by value and what by reference
walk         everything the pickle takes along, with the path to it
objects      what cannot be pickled, or cannot be loaded again
credentials  secrets and the environment's variables
paths        files of the author's machine
modules      imports that will not find what they import
hints        annotations that cannot be resolved again
state        what rollouts share without meaning to
examining    all of these, put together
"""
