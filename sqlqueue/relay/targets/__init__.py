"""What relays send to, a module each. An entry point in the group `sqlqueue.publishers` names the one for a URL, whose
module imports its client's library: none is imported before somebody asks for it."""
