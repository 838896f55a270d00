"""Finding the author's own code that a bundle has to carry, and refusing what it cannot carry.

serializer   one pickle of the environment, chosen modules by value
references   what a pickle would import when loaded
sources      which of those modules are the author's own source
declared     which are promised by pip_dependencies
rounds       capture until nothing local is left
guards       refuse what is left
reach, imports   import statements that run later
parts        what functions and classes take along
blame        which attribute could not be pickled
"""
