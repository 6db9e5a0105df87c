"""What other libraries' programs need of sqlqueue, a module each. `sqlqueue.plugins` loads one where the program has
imported the library; none is imported for sqlqueue's sake."""
