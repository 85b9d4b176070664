"""What a kernel reads and writes, found in its PTX: lexer, opcodes, values, flow, access."""
