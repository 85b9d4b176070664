"""From a source file to a launched kernel: source, compile, launch, tensor maps, plans, choice."""
