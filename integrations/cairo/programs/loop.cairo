%builtins output

func count(n: felt, sum: felt) -> (sum: felt) {
    if (n == 0) {
        return (sum=sum);
    }
    return count(n=n - 1, sum=sum + n * n);
}

func main{output_ptr: felt*}() {
    let (sum) = count(n=100, sum=0);
    assert output_ptr[0] = sum;
    let output_ptr = output_ptr + 1;
    return ();
}
