"""The recorder: what a server is asked and what it answers, kept in files. A process beside the core, the memory that
it shares with the core, and the form of its files, for whoever reads them. docs/RECORDING.md is the authority."""
