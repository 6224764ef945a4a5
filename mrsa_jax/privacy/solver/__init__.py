"""The searches behind weak privacy: light vectors of a row space, found or proved absent."""
