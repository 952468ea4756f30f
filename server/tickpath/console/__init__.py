"""What the command line does beyond parsing: talk to a server, run one, lay out what came."""
