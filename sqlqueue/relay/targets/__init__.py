"""What relays send to, a module each. An entry point in the group `sqlqueue.publishers` names the one for a URL."""
