/*/ __global__ void hidden() {} */
__global__ void k(int* x) { x[0] = 1; }
