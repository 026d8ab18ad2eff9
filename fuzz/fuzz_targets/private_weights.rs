#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gatework_fuzz::run("private_weights", bytes));
