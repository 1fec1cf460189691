const word: string = 'hello';
console.log(word);
