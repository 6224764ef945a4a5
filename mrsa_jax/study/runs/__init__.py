"""Studies as they are computed: built, simulated, trained, audited and compared."""
