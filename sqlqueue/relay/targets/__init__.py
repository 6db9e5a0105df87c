"""Publishers to brokers, a module each, found by their URL's scheme. A module imports its client's library, so none is
imported before somebody asks for it."""
