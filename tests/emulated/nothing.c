/* In the place of a library: without its functions, it counts as one that is too old. */
const int tbcNothing = 0;
