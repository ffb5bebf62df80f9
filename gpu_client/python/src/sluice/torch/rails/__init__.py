"""Rails: the ranks of a host reduce among themselves in a group of torch, such as NCCL's, and each sends its share to the ranks with its place in other
hosts."""
