"""Files of older schemas: they open, they migrate, their runs go on; killed in between they are old or new."""
