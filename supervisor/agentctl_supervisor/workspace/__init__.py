"""What a run did to the places that it could write to, found out without trusting them.

The run is dead by then, but what it left is its own choice: links, endless nesting, names made
for a terminal.  And another run in the same workspace may be alive, and hostile.
"""
