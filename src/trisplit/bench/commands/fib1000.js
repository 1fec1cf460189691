let [a, b] = [0n, 1n];
for (let i = 0; i < 1000; i++) [a, b] = [b, a + b];
console.log(String(a));
